package state

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/chatd/chatd/chat"
	"go.etcd.io/bbolt"
)

// keySize is the length of install.key in bytes.
const keySize = 32

// installKey reads install.key, and creates it if this state never had one. The database keeps a
// hash of the key, so that a lost or foreign key is an error; otherwise the same conversation would
// get another id.
func installKey(dir string, db *bbolt.DB) ([]byte, error) {
	path := filepath.Join(dir, keyName)
	want, err := keyPrint(db)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) && want == nil {
		if err := createKey(path); err != nil {
			return nil, err
		}
	}
	key, err := readKey(path)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(key)
	if want == nil {
		return key, db.Update(func(tx *bbolt.Tx) error {
			return tx.Bucket(metaBucket).Put(keyPrintKey, sum[:])
		})
	}
	if !bytes.Equal(want, sum[:]) {
		return nil, chat.Invalid("cannot use %s: it is not the key that %s was begun with; restore that one", path, db.Path())
	}
	return key, nil
}

func keyPrint(db *bbolt.DB) ([]byte, error) {
	return view(db, func(tx *bbolt.Tx) ([]byte, error) {
		return bytes.Clone(tx.Bucket(metaBucket).Get(keyPrintKey)), nil
	})
}

func readKey(path string) ([]byte, error) {
	f, err := openPrivate(path, os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("cannot read install key: %w", err)
	}
	key, err := io.ReadAll(io.LimitReader(f, keySize+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("cannot read install key: %w", err)
	}
	if len(key) != keySize {
		return nil, chat.Invalid("cannot use install key %s: want exactly %d bytes, it has another length",
			path, keySize)
	}
	return key, nil
}

// createKey makes a new key. The caller holds the lock: no other process creates one simultaneously.
func createKey(path string) error {
	key := make([]byte, keySize)
	rand.Read(key) // never fails, says crypto/rand
	err := replaceFile(path, func(f *os.File) error {
		_, err := f.Write(key)
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot create install key: %w", err)
	}
	return nil
}

// replaceFile writes a private file aside and renames it, so that a crash leaves what was there or
// all of it.
func replaceFile(path string, write func(*os.File) error) error {
	draft := path + ".new"
	if err := removeIfThere(draft); err != nil {
		return err
	}
	f, err := openPrivate(draft, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(draft, path)
	}
	if err != nil {
		return errors.Join(err, removeIfThere(draft))
	}
	return syncDir(filepath.Dir(path))
}

// DeriveKey returns a key for another purpose than ids, derived of the install key. No id is: the
// owner of a chat has a name.
func (s *Store) DeriveKey(purpose string) []byte {
	mac := hmac.New(sha256.New, s.key)
	_, _ = io.WriteString(mac, "\x00"+purpose) // a hash takes everything
	return mac.Sum(nil)
}
