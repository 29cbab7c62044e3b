package serve

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/redact"
)

func openedRecords(t *testing.T) (*recordStore, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "runs")
	hide := &redact.Redactor{}
	hide.Learn(secret)
	s, err := openRecords(dir, hide)
	if err != nil {
		t.Fatal(err)
	}
	return s, dir
}

// What is stored has no secrets, can be read by its owner alone, and is read again as it was.
func TestARecordIsStored(t *testing.T) {
	s, dir := openedRecords(t)
	r := record{ID: "20260102T030405.678Z-abcd", Targets: []string{"all", secret}, By: secret, Message: "the token " + secret,
		Started: time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC), PID: 7}
	if err := s.Save(r); err != nil {
		t.Fatal(err)
	}
	if r.Targets[1] != secret {
		t.Error("the caller's record is changed")
	}
	path := filepath.Join(dir, r.ID+".json")
	data, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(data), secret) {
		t.Errorf("%s: %v", data, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	all, err := s.Load()
	if err != nil || len(all) != 1 || all[0].Message != "the token [hidden]" || !all[0].Started.Equal(r.Started) || all[0].Done() {
		t.Errorf("%+v, %v", all, err)
	}
	for _, id := range []string{"", "../x", "20260102T030405.678Z-ab/cd", "20260102T030405.678Z-"} {
		if err := s.Save(record{ID: id}); err == nil {
			t.Errorf("id %q is taken", id)
		}
	}
}

func TestErrorsAreHidden(t *testing.T) {
	s, _ := openedRecords(t)
	const id = "20260102T030405.678Z-abcd"
	if text, err := s.HideErrors(id); text != "" || err != nil {
		t.Errorf("no file: %q, %v", text, err)
	}
	if err := os.WriteFile(s.Errors(id), []byte("panic: "+secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := s.HideErrors(id)
	data, read := os.ReadFile(s.Errors(id))
	if want := "panic: [hidden]\n"; text != want || string(data) != want || err != nil || read != nil {
		t.Errorf("%q, in the file %q: %v, %v", text, data, err, read)
	}
}

// Of the records that are too many the oldest go; one whose run still works stays.
func TestOldRecordsGo(t *testing.T) {
	s, _ := openedRecords(t)
	var all []record
	for i := range kept + 3 {
		r := record{ID: fmt.Sprintf("20260102T030405.%03dZ-a", i), Ended: time.Now()}
		if i == 0 {
			r.Ended = time.Time{}
		}
		if err := s.Save(r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	left, err := s.Prune(all)
	if err != nil || len(left) != kept || left[0].ID != all[0].ID || left[1].ID != all[4].ID {
		t.Errorf("%d are left, %s first: %v", len(left), left[1].ID, err)
	}
	if stored, err := s.Load(); err != nil || len(stored) != kept || stored[1].ID != all[4].ID {
		t.Errorf("%d are stored: %v", len(stored), err)
	}
}
