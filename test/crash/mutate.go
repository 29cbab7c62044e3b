package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// Mutation is a plausible mistake in one place of the code, with the fastest tests that must detect it.
type Mutation struct {
	Name     string
	File     string
	Old, New string
	Package  string // of the tests
	Run      string // -run of them; empty: all of the package
}

// MutationResult is the result of the tests of a mutation.
type MutationResult string

// The results. Only Caught is good.
const (
	Caught   MutationResult = "caught"
	Survived MutationResult = "survived" // the tests pass as if nothing were wrong
	Stale    MutationResult = "stale"    // the text is not there (once), or the mutated code does not compile
)

// testsWithin bounds the tests of one mutation: one that has them wait for ever is caught, too.
const testsWithin = 3 * time.Minute

// workshop is a copy of the code in which mutations are tried, one at a time.
type workshop struct {
	root  string
	guard *guard
}

// apply changes the copy of the code, and returns a function that reverts it.
func (m Mutation) apply(w workshop) (undo func() error, err error) {
	path := filepath.Join(w.root, m.File)
	was, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(was, []byte(m.Old)); n != 1 || m.Old == m.New {
		return nil, fmt.Errorf("the text that it replaces is %d times in %s, not once: bring the mutation up to the code", n,
			m.File)
	}
	mutated := bytes.Replace(was, []byte(m.Old), []byte(m.New), 1)
	return func() error { return os.WriteFile(path, was, 0o600) }, os.WriteFile(path, mutated, 0o600)
}

// TryMutations breaks a copy of the code in one place after the other and runs the tests that must
// notice; they pass before. only selects by name. The copy and the tests at work are gone when it
// returns; they also end with this process.
func TryMutations(ctx context.Context, source, only string, out io.Writer) (err error) {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "slipway-mutations-")
	if err != nil {
		return err
	}
	g, err := startGuard("", folderScript, dir)
	if err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	defer func() { err = errors.Join(err, g.end()) }()
	shop := workshop{filepath.Join(dir, "copy"), g}
	if err := copyCode(ctx, source, shop.root); err != nil {
		return err
	}
	var rows [][]string
	notCaught := 0
	passed := map[string]error{}
	for _, m := range Mutations() {
		if !wanted.MatchString(m.Name) {
			continue
		}
		tests := m.Package + " " + m.Run
		if _, known := passed[tests]; !known {
			_, passed[tests] = shop.test(ctx, m)
		}
		result, why := MutationResult(""), ""
		if err := passed[tests]; err != nil {
			result, why = Stale, "the tests fail without it, too: "+err.Error()
		} else {
			result, why = shop.try(ctx, m)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if result != Caught {
			notCaught++
		}
		fmt.Fprintf(out, "%-8s  %s: %s\n", result, m.Name, why)
		rows = append(rows, []string{m.Name, m.File, strings.TrimSpace(m.Package + " " + strings.Trim(m.Run, "^$")),
			string(result)})
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintf(w, "| mutation\t| in\t| noticed by\t| result\t|\n| ---\t| ---\t| ---\t| ---\t|\n")
	for _, row := range rows {
		fmt.Fprintf(w, "| %s\t| `%s`\t| `%s`\t| %s\t|\n", row[0], row[1], row[2], row[3])
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if notCaught > 0 {
		return fmt.Errorf("%d of %d mutations were not caught", notCaught, len(rows))
	}
	return nil
}

// try applies a mutation, runs the tests and reverts it.
func (w workshop) try(ctx context.Context, m Mutation) (result MutationResult, why string) {
	undo, err := m.apply(w)
	if err != nil {
		return Stale, err.Error()
	}
	defer func() {
		if err := undo(); err != nil {
			result, why = Stale, "it cannot be reverted: "+err.Error()
		}
	}()
	says, err := w.test(ctx, m)
	var broken *buildError
	switch {
	case errors.As(err, &broken):
		return Stale, "the mutated code does not compile: " + broken.says
	case err == nil:
		return Survived, "no test of " + m.Package + " fails"
	}
	return Caught, says
}

// buildError is code or tests that do not compile.
type buildError struct{ says string }

func (e *buildError) Error() string { return e.says }

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// test runs the mutation's tests. An error is their failure; says names the first test that failed.
func (w workshop) test(ctx context.Context, m Mutation) (says string, err error) {
	binary := filepath.Join(filepath.Dir(w.root), "mutated.test")
	defer os.Remove(binary)
	// Compiled first, so that the time that it takes is not the tests'.
	if out, err := w.run(ctx, w.root, "go", "test", "-c", "-o", binary, "./"+m.Package); err != nil {
		return "", &buildError{lastLine(out)}
	}
	// before that the tests time out themselves, and print where they hang
	ctx, cancel := context.WithTimeout(ctx, testsWithin+30*time.Second)
	defer cancel()
	out, err := w.run(ctx, filepath.Join(w.root, m.Package), binary, "-test.timeout", testsWithin.String(), "-test.run",
		m.Run)
	if err == nil && strings.Contains(out, "no tests to run") {
		return "", errors.New("there is no such test")
	}
	if err != nil && (ctx.Err() != nil || strings.Contains(out, "panic: test timed out")) {
		return "the tests never end", err
	}
	if name := failedTest.FindStringSubmatch(out); name != nil {
		return name[1] + " fails", err
	}
	return lastLine(out), err
}

// run runs a command in a process group of its own, which has ended when it returns.
func (w workshop) run(ctx context.Context, dir, name string, args ...string) (output string, err error) {
	cmd := grouped(ctx, slices.Concat([]string{name}, args)...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := w.guard.start(cmd); err != nil {
		return "", err
	}
	err = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // remaining processes of the group
	w.guard.watch(0)
	return out.String(), err
}

// copyCode copies the main module, except for files that are not its source.
func copyCode(ctx context.Context, source, to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(source)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || e.Name() == "lab" {
			continue
		}
		if err := copyFolder(ctx, filepath.Join(source, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
