package provision

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/leftovers"
	"github.com/chatd/chatd/scan"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
)

// scanFile is the file in the state directory that says how far the scan came.
const scanFile = "scan.json"

// newScanner makes what looks for files of reaped chats outside the places that reap knows.
func (m *Manager) newScanner() *leftovers.Scanner {
	w := leftovers.Walker{Program: m.paths.shim, Name: shims.ProgramName, UID: m.probeUID()}
	if m.units { // its own /tmp, /home and more are not the host's
		w.Namespace = "/proc/1/ns/mnt"
	}
	return leftovers.NewScanner(leftovers.ScannerOptions{
		Walker: w, File: filepath.Join(m.opt.State, scanFile), Spent: m.spentUIDs,
		Before: m.sweepJournals, Chats: m.chatsOfSpent, Report: m.reportLeft,
		Every: m.opt.ScanEvery, Under: m.opt.ScanUnder, Log: m.log,
	})
}

// followScans tries whether the host can be scanned, and scans it until the Manager ends.
func (m *Manager) followScans() {
	m.scanner.Try(m.bg)
	m.scanner.Run(m.bg)
}

func (m *Manager) spentUIDs() (spent []scan.Range) {
	for _, r := range m.store.SpentRanges() {
		spent = append(spent, scan.Range{r.Low, r.High})
	}
	return spent
}

// chatsOfSpent reads in the audit log which chats had the uids.
func (m *Manager) chatsOfSpent(ctx context.Context, uids []uint32) (map[uint32]string, error) {
	chats := map[uint32]string{}
	for _, uid := range uids {
		chats[uid] = ""
	}
	err := state.ReadAudit(ctx, m.opt.State, false, func(l state.AuditLine) error {
		if _, asked := chats[l.UID]; asked && l.Action == "reap" {
			chats[l.UID] = string(l.Chat)
		}
		return context.Cause(ctx)
	})
	return chats, err
}

// reportLeft writes what the scan found of one uid into chatd's log and the audit log.
func (m *Manager) reportLeft(l leftovers.Left) {
	rec := state.Record{ID: chat.ID(l.Chat), UID: l.UID}
	detail := map[string]string{
		"uid": fmt.Sprint(l.UID), "files": fmt.Sprint(l.Files), "first": quoteAll(l.First),
	}
	m.log.Warn("files of a reaped chat were found", "chat", l.Chat, "uid", l.UID,
		"files", l.Files, "first", detail["first"])
	if err := m.audit(context.Background(), rec, "scan", "left", detail); err != nil {
		m.log.Error("cannot audit what the scan found", "uid", l.UID, "error", err)
	}
}

// quoteAll writes paths on one line.
func quoteAll(paths [][]byte) string {
	var all []string
	for _, p := range paths {
		all = append(all, chat.Quote(string(p)))
	}
	return strings.Join(all, " ")
}

// scanFindings say what the scan found, and why it cannot look.
func (m *Manager) scanFindings() (findings []string) {
	if m.scanner == nil { // doctor without a daemon
		return nil
	}
	if err := m.scanner.Fault(); err != nil {
		findings = append(findings, err.Error())
	}
	left, more := m.scanner.Left()
	for _, l := range left {
		findings = append(findings, leftFinding(l))
	}
	if more > 0 {
		findings = append(findings,
			fmt.Sprintf("files of more reaped chats lie in %d directories", more))
	}
	return findings
}

// leftFinding says what to do about the files of one uid.
func leftFinding(l leftovers.Left) string {
	of := fmt.Sprintf("uid %d", l.UID)
	if l.Chat != "" {
		of += " (chat " + l.Chat + ", reaped)"
	}
	var where []string
	for _, mount := range l.Mounts {
		where = append(where, shellWord(string(mount)))
	}
	return fmt.Sprintf("%d files belong to %s, as %s: look at them, and remove them or give them "+
		"to somebody: find %s -xdev -uid %d", l.Files, of, quoteAll(l.First), strings.Join(where, " "), l.UID)
}

// shellWord quotes a path for a shell.
func shellWord(path string) string {
	const plain = "/._-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if strings.Trim(path, plain) == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// sweepJournals removes journals of spent uids that journald made anew.
func (m *Manager) sweepJournals() {
	m.report("journals of reaped chats", leftovers.RemoveJournals(m.store.Spent))
}
