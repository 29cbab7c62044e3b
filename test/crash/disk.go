package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// MachineFault is something that goes wrong with the machine on which the command runs.
type MachineFault struct {
	Name  string
	Stage string
	try   func(*trial, context.Context) error
}

// Disks are the machine's faults over the real command. What a disk can do to the journal at each of
// its calls, flow's own tests go through.
func Disks() []MachineFault {
	changed := func(name, stage string, change func([]byte) []byte, refused bool) MachineFault {
		return MachineFault{name, stage, func(t *trial, ctx context.Context) error {
			return t.changedJournal(ctx, change, refused)
		}}
	}
	var all []MachineFault
	for _, stage := range []string{"image", "nodes", "all"} {
		all = append(all,
			MachineFault{stage + ": read-only state folder", stage, (*trial).readOnly},
			MachineFault{stage + ": full disk", stage, (*trial).fullDisk})
	}
	for _, stage := range []string{"providers", "nodes", "pivot"} {
		all = append(all,
			changed(stage+": truncated journal", stage, func(j []byte) []byte { return j[:len(j)/2] }, true),
			changed(stage+": empty journal", stage, func([]byte) []byte { return nil }, true),
			changed(stage+": journal with a flipped bit", stage, func(j []byte) []byte { j[len(j)/3] ^= 0x20; return j }, true),
			changed(stage+": journal of a newer version", stage, func(j []byte) []byte {
				return regexp.MustCompile(`"format": \d+`).ReplaceAll(withoutSum(j), []byte(`"format": 99`))
			}, true),
			changed(stage+": clock a year ahead", stage, shiftYears(1), false),
			changed(stage+": clock a year behind", stage, shiftYears(-1), false),
			MachineFault{stage + ": lost journal", stage, (*trial).lostJournal})
	}
	return all
}

// withoutSum is a journal without its digest, as before the operator edits it.
func withoutSum(journal []byte) []byte {
	return regexp.MustCompile(`,\s*"sum": "[^"]*"`).ReplaceAll(journal, nil)
}

// shiftYears moves all times in a journal, as if the clock had jumped since.
func shiftYears(by int) func([]byte) []byte {
	year := regexp.MustCompile(`"20\d\d-`)
	return func(journal []byte) []byte {
		return year.ReplaceAllFunc(withoutSum(journal), func(was []byte) []byte {
			var n int
			_, _ = fmt.Sscanf(string(was), `"%d-`, &n) // the pattern has digits there
			return fmt.Appendf(nil, `"%d-`, n+by)
		})
	}
}

func (t *trial) disk(ctx context.Context) error {
	all := Disks()
	return all[slices.IndexFunc(all, func(f MachineFault) bool { return f.Name == t.c.What })].try(t, ctx)
}

func (t *trial) journalPath() string { return filepath.Join(t.State, "journal.json") }

// changedJournal changes the journal's file. Where that must be refused, the run says so and changes nothing; then what
// is good is put back. Otherwise the run ends well, or refuses, too.
func (t *trial) changedJournal(ctx context.Context, change func([]byte) []byte, refused bool) error {
	good, err := os.ReadFile(t.journalPath())
	if err != nil {
		return err
	}
	if err := os.WriteFile(t.journalPath(), change(slices.Clone(good)), 0o600); err != nil {
		return err
	}
	t.forgotten = true // a flipped bit may be in any record
	o, err := t.run(ctx, Run{})
	if err != nil {
		return err
	}
	switch {
	case refused && o.Exit != 1:
		t.find("the damaged journal", fmt.Sprintf("it was not refused: exit %d", o.Exit))
	case o.Exit == 1 && !strings.Contains(o.Output, "journal"):
		t.find("the damaged journal", "the refusal does not name it: "+lastLine(o.Output))
	}
	if o.Exit != 0 {
		if err := os.WriteFile(t.journalPath(), good, 0o600); err != nil {
			return err
		}
	}
	return t.finish(ctx)
}

// lostJournal deletes the journal: the next run finds everything again.
func (t *trial) lostJournal(ctx context.Context) error {
	if err := os.Remove(t.journalPath()); err != nil {
		return err
	}
	t.forgotten = true
	t.args = upTo(t.c.Stage) // steps that the stage does not hang on are to be found again, too
	return t.finish(ctx)
}

// upTo are the arguments for the targets of the stages up to one.
func upTo(stage string) []string {
	var args []string
	for _, s := range Stages() {
		args = append(args,
			slices.DeleteFunc(slices.Clone(s.Args), func(word string) bool { return strings.HasPrefix(word, "-") })...)
		if s.Name == stage {
			break
		}
	}
	return append(args, "--lab")
}

// namespace is the command that starts a program in a mount namespace; an error says why that is not possible.
func namespace(ctx context.Context) ([]string, error) {
	var last error
	for _, how := range [][]string{{"unshare", "--mount"}, {"unshare", "--map-root-user", "--mount"}} {
		out, err := exec.CommandContext(ctx, how[0], append(how[1:], "mount", "-t", "tmpfs", "-o", "size=64k", "none",
			os.TempDir())...).CombinedOutput()
		if err == nil {
			return how, nil
		}
		last = fmt.Errorf("no mount namespace: %s: %w: %s", strings.Join(how, " "), err, strings.TrimSpace(string(out)))
	}
	return nil, last
}

// readOnlyScript runs a command with its state folder read-only: $1 is the folder.
const readOnlyScript = `state=$1; shift
mount --bind "$state" "$state" && mount -o remount,ro,bind "$state" && exec "$@"`

// fullScript runs a command with its state folder, but for the lab's, on a file system that is full but for $2
// kilobytes. What is on it in the end is in the folder afterwards.
const fullScript = `state=$1; free=$2; shift 2
real=$(mktemp -d) && small=$(mktemp -d) || exit 90
mount --bind "$state" "$real" || exit 90
used=$(cd "$state" && find . -path ./lab -prune -o -type f -print0 | du -ck --files0-from=- | tail -1 | cut -f1)
mount -t tmpfs -o size=$((used + free + 64))k none "$small" || exit 90
(cd "$real" && tar cf - --exclude=./lab .) | (cd "$small" && tar xf -) || exit 90
mkdir "$small/lab" && mount --bind "$real/lab" "$small/lab" && mount --rbind "$small" "$state" || exit 90
left=$(df -k --output=avail "$state" | tail -1)
if [ "$left" -gt "$free" ]; then head -c $(((left - free) * 1024)) /dev/zero >"$state/ballast"; fi
"$@"
exit=$?
rm -f "$state/ballast"
(cd "$small" && tar cf - --exclude=./lab .) | (cd "$real" && find . -mindepth 1 -maxdepth 1 ! -name lab -exec rm -rf {} + && tar xf -) || exit 90
umount -R "$state" && umount -R "$small" && umount "$real" && rmdir "$small" "$real"
exit $exit`

// inNamespace runs the command in a mount namespace; a case that cannot is skipped.
func (t *trial) inNamespace(ctx context.Context, script string, more ...string) (Outcome, bool, error) {
	how, err := namespace(ctx)
	if err != nil {
		t.skipped = err.Error()
		return Outcome{}, false, nil
	}
	o, err := t.run(ctx, Run{Wrap: append(append(slices.Clone(how), "sh", "-c", script, "crash-disk", t.State), more...)})
	return o, true, err
}

func (t *trial) readOnly(ctx context.Context) error {
	o, ran, err := t.inNamespace(ctx, readOnlyScript)
	if err != nil || !ran {
		return err
	}
	if o.Exit != 1 || !strings.Contains(o.Output, "read-only") {
		t.find("the read-only state folder", fmt.Sprintf("exit %d: %s", o.Exit, lastLine(o.Output)))
	}
	return t.finish(ctx)
}

func (t *trial) fullDisk(ctx context.Context) error {
	o, ran, err := t.inNamespace(ctx, fullScript, "12")
	if err != nil || !ran {
		return err
	}
	switch {
	case o.Exit == 90:
		return errors.New("the small disk cannot be created: " + lastLine(o.Output))
	case o.Exit == 0 && o.Elapsed > time.Second:
		t.skipped = "the run needed less than the disk had left"
		return nil
	case o.Exit != 1 || !strings.Contains(o.Output, "no space left"):
		t.find("the full disk", fmt.Sprintf("exit %d: %s", o.Exit, lastLine(o.Output)))
	}
	return t.finish(ctx)
}
