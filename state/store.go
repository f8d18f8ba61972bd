package state

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chatd/chatd/chat"
	"go.etcd.io/bbolt"
)

// The default uid range: unassigned in systemd's UIDS-GIDS and above Debian's subordinate uids. A
// block has 65,536.
const (
	DefaultLow       = 1879048192 // 0x70000000
	DefaultHigh      = 1895825407 // 0x70ffffff
	DefaultBlockSize = 65536
)

// Names inside the state directory.
const (
	lockName  = "lock"
	dbName    = "chatd.db"
	keyName   = "install.key"
	auditName = "audit.jsonl"
)

// Options say where the state is and which uids it may give.
type Options struct {
	// Dir is created with mode 0711 if it does not exist; it must belong to the caller's uid, and
	// no other user may write in it.
	Dir string
	// UIDs is the host's range for chats; zero means DefaultLow to DefaultHigh. Its last two
	// uids are reserved: for sockets to DNS servers, and for probes.
	UIDs Range
	// BlockSize is how many uids a block has; zero means DefaultBlockSize.
	BlockSize uint32
	// AuditMax is the size in bytes at which audit.jsonl is rotated; the lines of about a second
	// may exceed it. Zero means no limit.
	AuditMax int64
	// AuditKeep is how many full logs are kept; zero means all.
	AuditKeep int
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.UIDs == (Range{}) {
		o.UIDs = Range{Low: DefaultLow, High: DefaultHigh}
	}
	if o.BlockSize == 0 {
		o.BlockSize = DefaultBlockSize
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

func (o Options) validate() error {
	switch {
	case o.Dir == "":
		return chat.Invalid("cannot open state: no directory named")
	case o.UIDs.Low == 0 || o.UIDs.Low >= o.UIDs.High || o.UIDs.High >= math.MaxInt32:
		return chat.Invalid("cannot open state %s: uid range %s: want 0 < low < high < 2147483647", o.Dir,
			o.UIDs)
	case o.AuditMax < 0 || o.AuditKeep < 0:
		return chat.Invalid("cannot open state %s: audit logs of %d bytes, %d kept: want no negative number", o.Dir, o.AuditMax, o.AuditKeep)
	}
	return nil
}

// Store is the open state of one host. Its methods are safe for concurrent use.
type Store struct {
	opts Options
	lock *os.File
	key  []byte
	db   *bbolt.DB
	log  *auditLog
	// dbFile is db's file, and dbRoom its reserved blocks; under writer.
	dbFile *os.File
	dbRoom reserve
	// readOnly says that nothing can be written, from Open to Close.
	readOnly bool

	// writer is held across a commit; mu only while memory is read or changed. Lock order: writer,
	// then mu.
	writer sync.Mutex
	broken error // why no further commit is tried; under writer
	tx     uint64

	backingUp sync.Mutex // held by Backup, which takes writer inside

	mu     sync.RWMutex
	index  *index
	blocks []*block
	owners map[string]OwnerUse
	dirty  map[uint32]bool // uids whose record in memory is newer than on disk
	behind error           // the error of the last background flush

	stirred atomic.Bool // a background flush is due
}

// Open locks the state directory for this process and reads it. [chat.ErrBusy] means that another
// process holds the lock file, which the error names. The caller closes the store.
func Open(o Options) (*Store, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o711); err != nil {
		return nil, fmt.Errorf("cannot create state directory %s: %w", o.Dir, err)
	}
	if err := checkDir(o.Dir); err != nil {
		return nil, err
	}
	lock, err := lockFile(filepath.Join(o.Dir, lockName))
	if err != nil {
		return nil, err
	}
	s := &Store{opts: o, lock: lock, dirty: map[uint32]bool{}}
	if err := s.read(); err != nil {
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

// read opens everything under the lock: database, key, memory, audit log.
func (s *Store) read() error {
	var err error
	s.readOnly = isReadOnly(s.opts.Dir)
	if s.db, s.dbFile, err = openDB(filepath.Join(s.opts.Dir, dbName), s.readOnly, time.Second); err != nil {
		return err
	}
	if !s.readOnly {
		if err := guarded(s.db.Path(), func() error { return s.db.Update(begin) }); err != nil {
			return fmt.Errorf("cannot use %s: %w", s.db.Path(), err)
		}
	}
	s.setAside()
	if s.key, err = installKey(s.opts.Dir, s.db); err != nil {
		return err
	}
	if err := guarded(s.db.Path(), s.load); err != nil {
		return fmt.Errorf("cannot read %s: %w", s.db.Path(), err)
	}
	return s.openAudit()
}

// load reads the database into memory.
func (s *Store) load() (err error) {
	s.index, s.blocks, s.owners, err = load(s.db)
	return err
}

// openDB never sets NoSync, with which a power cut could leave pages of two commits. It changes
// nothing in a database that exists, and waits no longer than patience for a process that has it.
func openDB(path string, readOnly bool, patience time.Duration) (db *bbolt.DB, file *os.File, err error) {
	err = guarded(path, func() (err error) {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout:         patience,
			ReadOnly:        readOnly,
			FreelistType:    bbolt.FreelistMapType,
			InitialMmapSize: 16 << 20,
			OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
				file, err = openPrivate(name, flag)
				return file, err
			},
		})
		return err
	})
	if err != nil {
		if file != nil {
			letGo(file)
		}
		return nil, nil, cannotOpen(path, err)
	}
	check := checkVersion
	if readOnly {
		check = readable
	}
	look := func(tx *bbolt.Tx) error { return errors.Join(wholeFile(tx, path, file), check(tx)) }
	if err := guarded(path, func() error { return db.View(look) }); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("cannot use %s: %w", path, err), db.Close())
	}
	return db, file, nil
}

// setAside reserves blocks ahead of the database. The caller holds writer, or has not published the
// store yet.
func (s *Store) setAside() {
	if s.readOnly {
		return
	}
	used := int64(0)
	_ = s.db.View(func(tx *bbolt.Tx) error { used = tx.Size(); return nil }) // a closed one fails later
	s.dbRoom.ahead(s.dbFile, used, dbReserve)
}

// Close flushes delayed writes and releases the directory. Reads still answer from memory
// afterwards; writes fail. A second Close does nothing.
func (s *Store) Close() error {
	s.writer.Lock()
	defer s.writer.Unlock()
	if errors.Is(s.broken, errClosed) {
		return nil
	}
	var err error
	if !s.readOnly {
		err = s.flush()
	}
	s.broken = errors.Join(errClosed, s.broken)
	return errors.Join(err, s.release())
}

// release closes the files, the lock last.
func (s *Store) release() error {
	var errs []error
	if s.log != nil {
		errs = append(errs, s.log.close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	errs = append(errs, s.lock.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cannot close state %s: %w", s.opts.Dir, err)
	}
	return nil
}
