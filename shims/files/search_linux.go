package files

import (
	"bytes"
	"io"

	"github.com/chatd/chatd/internal/filewire"
)

// search counts the matches of old in r, overlapping ones too: "aa" is twice in "aaa", which makes
// an edit ambiguous. It returns the offset of the first. It is the algorithm of Knuth, Morris and
// Pratt: hostile input cannot make the time grow with the product of the lengths.
func search(r io.Reader, old []byte) (first, count int64, err error) {
	back := borders(old)
	buf := make([]byte, filewire.BufferSize)
	first = -1
	var off int64
	matched := 0
	for {
		n, err := r.Read(buf)
		for i := 0; i < n; i++ {
			if matched == 0 {
				skip := bytes.IndexByte(buf[i:n], old[0])
				if skip < 0 {
					break
				}
				i += skip
			}
			for matched > 0 && buf[i] != old[matched] {
				matched = int(back[matched-1])
			}
			if buf[i] == old[matched] {
				matched++
			}
			if matched == len(old) {
				if count++; count == 1 {
					first = off + int64(i) + 1 - int64(len(old))
				}
				matched = int(back[matched-1])
			}
		}
		off += int64(n)
		if err == io.EOF {
			return first, count, nil
		}
		if err != nil {
			return first, count, err
		}
	}
}

// borders is, for each prefix of old, the length of its longest proper prefix that is also its
// suffix.
func borders(old []byte) []int32 {
	back := make([]int32, len(old))
	k := int32(0)
	for i := 1; i < len(old); i++ {
		for k > 0 && old[i] != old[k] {
			k = back[k-1]
		}
		if old[i] == old[k] {
			k++
		}
		back[i] = k
	}
	return back
}

// countLines counts the line ends in the first n bytes of r.
func countLines(r io.ReaderAt, n int64) (int64, error) {
	lines := sink{w: io.Discard}
	_, err := filewire.Copy(&lines, io.NewSectionReader(r, 0, n))
	return lines.feeds, err
}
