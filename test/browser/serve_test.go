// Package browser watches a rehearsal through the page of serve, in a browser without a window. make test-serve runs it.
package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const (
	// runWithin is how long a rehearsal may take on a machine that does other things besides.
	runWithin = 15 * time.Minute
	// viewWithin is how long the page may take to show what is there.
	viewWithin = time.Minute
)

// TestARunIsWatched logs in, plans and starts a run, loses serve twice, once with the run, and watches the run that
// serve resumes to its end.
func TestARunIsWatched(t *testing.T) {
	d := newDesk(t)
	first := d.serve()
	b := newBrowser(t)

	b.do("open the page", chromedp.Navigate(d.address), chromedp.WaitVisible("#token"))
	b.do("a wrong token", chromedp.SendKeys("#token", "wrong"), chromedp.Click("form.login button"),
		chromedp.WaitVisible(".login .error"))
	b.mayComplain(401)
	b.picture("login", 1280)
	b.login(d)
	b.do("the cluster", b.see("main h2", "desk"), b.see("ul.cards", "No run yet"))
	b.do("plan", chromedp.KeyEvent("n"), b.see("h3", "Plan of bootstrap"), b.see("table", "wait-cp"))
	b.picture("plan", 1280)
	b.picture("plan", 375)
	b.do("start", chromedp.WaitEnabled(`//button[starts-with(., "Start")]`), chromedp.Click(`//button[starts-with(., "Start")]`),
		b.see("main h2", "running"))
	d.wait("wait-cp has begun", func() bool { return strings.Contains(d.events(), `"step":"wait-cp"`) })
	b.do("a step that waits says for what", b.see("ol.steps", "wait-cp"), b.see("ol.steps .why", "desk-control-plane-"))
	b.picture("running", 1280)
	b.picture("running", 375)

	// Serve alone is killed: its run goes on, and is found again.
	kill(t, first.Process.Pid)
	_ = first.Wait()
	second := d.serve()
	run := d.runs()[0]
	if run.State != "running" {
		t.Fatalf("serve was killed, and the run that goes on is shown as %+v", run)
	}
	b.do("the page asks for a login", chromedp.WaitVisible("#token"))
	b.mayComplain(401)
	b.login(d)
	b.do("the run is followed again", b.see("main h2", "running"), b.see("ol.steps", "wait-cp"))

	// Serve and its run are killed, as with a container.
	records := d.record(run.ID)
	kill(t, second.Process.Pid)
	kill(t, -records.PID)
	_ = second.Wait()
	d.serve("--resume")
	var next summary
	d.wait("the run is resumed", func() bool {
		all := d.runs()
		next = all[0]
		return len(all) == 2
	})
	if next.Resumes != run.ID || next.By != "serve" {
		t.Fatalf("the run that resumes %s is %+v", run.ID, next)
	}
	if killed := d.runs()[1]; killed.State != "interrupted" {
		t.Fatalf("the run that was killed is shown as %+v", killed)
	}
	b.do("log in again", chromedp.WaitVisible("#token"))
	b.login(d)
	b.do("the killed run says what to do", b.see("main h2", "interrupted"), b.see("main", "What is done is kept"),
		b.see("main", "resumed by "+next.ID))
	b.picture("interrupted", 1280)
	b.do("its cluster", chromedp.KeyEvent("u"), b.see("ul.cards", "interrupted"), b.see("ul.cards", "by serve"))
	b.do("the resumed run, by keys", chromedp.KeyEvent("j"), chromedp.KeyEvent(kb.Enter), b.see("main", "resumes "))
	b.within(runWithin, "its end", b.see("main h2", "finished"))
	b.do("all steps", b.see("ol.steps", "wait-nodes"))
	b.picture("finished", 1280)
	b.picture("finished", 375)
	b.do("the effects", chromedp.KeyEvent("3"), b.see("main", "changes of"), b.see("table", "workload create"))
	b.picture("effects", 375)
	b.do("the report", chromedp.KeyEvent("2"), chromedp.WaitVisible("iframe"))
	b.seeInFrame("Bootstrap of desk")
	b.picture("report", 1280)
	b.do("status and doctor", chromedp.KeyEvent("u"), b.see("main h2", "desk"), chromedp.KeyEvent("2"), b.see("table", "Ready"))
	b.picture("status", 1280)
	b.do("doctor", chromedp.KeyEvent("3"), b.see("main", "would stop a run"))
	b.picture("doctor", 1280)
	b.do("the keys", chromedp.KeyEvent("?"), chromedp.WaitVisible("#help"))
	b.picture("keys", 1280)
	b.do("dark", chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent("1"), chromedp.ActionFunc(func(ctx context.Context) error {
		return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}).Do(ctx)
	}), b.see("ul.cards", "finished"))
	b.picture("dark", 1280)
	b.do("log out", chromedp.Click("#logout"), chromedp.WaitVisible("#token"))
	if said := b.complaints(); len(said) > 0 {
		t.Errorf("the browser complained:\n%s", strings.Join(said, "\n"))
	}
	d.noSecrets()
}

// desk is a folder in which serve runs.
type desk struct {
	t              *testing.T
	command, state string
	address, token string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t, state: filepath.Join(t.TempDir(), "state"), command: os.Getenv("SLIPWAY_COMMAND")}
	if d.command == "" {
		d.command = filepath.Join(t.TempDir(), "bootstrap")
		build := exec.Command("go", "build", "-o", d.command, "./cmd/bootstrap")
		build.Dir = "../.."
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build the command: %v\n%s", err, out)
		}
	}
	t.Cleanup(func() {
		if down, err := d.run("lab", "down"); err != nil {
			t.Errorf("lab down: %v\n%s", err, down)
		}
	})
	return d
}

// run runs the command to its end.
func (d *desk) run(args ...string) (string, error) {
	cmd := exec.Command(d.command, append(args, "--state-dir", d.state, "CLUSTER_NAME=desk")...)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// serve starts serve, and waits until it answers; the second time at the same address.
func (d *desk) serve(more ...string) *exec.Cmd {
	d.t.Helper()
	listen := "127.0.0.1:0"
	if d.address != "" {
		listen = strings.TrimPrefix(d.address, "http://")
	}
	args := append([]string{"serve", "--lab", "--lab-until-gone", fmt.Sprint(os.Getpid()), "--output", "json", "--listen", listen,
		"--state-dir", d.state, "CLUSTER_NAME=desk"}, more...)
	cmd := exec.Command(d.command, args...)
	cmd.Dir = "../.."
	out, err := cmd.StdoutPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	said := &bytes.Buffer{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		d.t.Logf("serve said:\n%s", said)
	})
	var serving struct{ Address, TokenFile string }
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &serving)
	}
	if err != nil {
		d.t.Fatalf("serve does not say where it listens: %v: %q", err, line)
	}
	token, err := os.ReadFile(serving.TokenFile)
	if err != nil {
		d.t.Fatal(err)
	}
	d.address, d.token = serving.Address, strings.TrimSpace(string(token))
	return cmd
}

// summary is what the API says of a run.
type summary struct{ ID, Run, State, By, Resumes string }

func (d *desk) runs() []summary {
	d.t.Helper()
	request, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, d.address+"/api/v1/clusters/desk/runs", nil)
	if err != nil {
		d.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+d.token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		d.t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct{ Items []summary }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		d.t.Fatal(err)
	}
	return answer.Items
}

// record is what serve has written down of a run.
func (d *desk) record(id string) (r struct{ PID int }) {
	d.t.Helper()
	data, err := os.ReadFile(filepath.Join(d.state, "serve", "runs", id+".json"))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil || r.PID <= 0 {
		d.t.Fatalf("the record of run %s: %v, process %d", id, err, r.PID)
	}
	return r
}

// events are those of the newest run.
func (d *desk) events() string {
	data, _ := os.ReadFile(filepath.Join(d.state, "events.jsonl"))
	return string(data)
}

func (d *desk) wait(what string, is func() bool) {
	d.t.Helper()
	for deadline := time.Now().Add(runWithin); !is(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			d.t.Fatalf("%s: not within %s", what, runWithin)
		}
	}
}

// noSecrets searches what serve wrote for its token, and for the key of the kubeconfig.
func (d *desk) noSecrets() {
	d.t.Helper()
	secrets := []string{d.token}
	kubeconfig, err := os.ReadFile(filepath.Join(d.state, "kubeconfig"))
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(kubeconfig)) {
		if _, key, is := strings.Cut(line, "client-key-data: "); is {
			secrets = append(secrets, strings.TrimSpace(key))
		}
	}
	if len(secrets) < 2 {
		d.t.Fatal("the kubeconfig has no key")
	}
	err = filepath.WalkDir(filepath.Join(d.state, "serve"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Base(path) == "token" {
			return err
		}
		data, err := os.ReadFile(path)
		for _, secret := range secrets {
			if bytes.Contains(data, []byte(secret)) {
				d.t.Errorf("%s holds a secret", path)
			}
		}
		return err
	})
	if err != nil {
		d.t.Error(err)
	}
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
}

// browser is one tab.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu   sync.Mutex
	said []string // what the page, or its policy, complained about
}

// programs are the names of browsers that are looked for.
var programs = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	path := os.Getenv("BROWSER_COMMAND")
	for _, name := range programs {
		if found, err := exec.LookPath(name); path == "" && err == nil {
			path = found
		}
	}
	if path == "" {
		t.Skipf("no browser is installed: none of %s is in PATH, and BROWSER_COMMAND names none", strings.Join(programs, ", "))
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.WindowSize(1280, 900))
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancelTab := chromedp.NewContext(allocator)
	t.Cleanup(cancelTab)
	b := &browser{t: t, ctx: ctx}
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *log.EventEntryAdded:
			b.complain(fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
		case *runtime.EventExceptionThrown:
			b.complain(e.ExceptionDetails.Error())
		}
	})
	return b
}

func (b *browser) complain(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// While serve is down its requests fail, as they should.
	if !strings.Contains(text, "net::ERR_CONNECTION_REFUSED") && !strings.Contains(text, "net::ERR_INCOMPLETE_CHUNKED_ENCODING") &&
		!strings.Contains(text, "net::ERR_CONNECTION_RESET") && !strings.Contains(text, "net::ERR_EMPTY_RESPONSE") {
		b.said = append(b.said, text)
	}
}

// mayComplain forgets complaints about requests that were refused with a status, as they had to be.
func (b *browser) mayComplain(status int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = slices.DeleteFunc(b.said, func(s string) bool { return strings.Contains(s, fmt.Sprintf("status of %d", status)) })
}

func (b *browser) complaints() []string {
	b.mayComplain(401)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said
}

func (b *browser) do(what string, actions ...chromedp.Action) {
	b.t.Helper()
	b.within(viewWithin, what, actions...)
}

func (b *browser) within(within time.Duration, what string, actions ...chromedp.Action) {
	b.t.Helper()
	for _, action := range actions {
		if err := run(b.ctx, within, action); err != nil {
			b.picture("failed", 1280)
			var text string
			_ = run(b.ctx, 5*time.Second, chromedp.Text("main", &text))
			b.t.Fatalf("%s: %v; the page shows:\n%s\nand complained: %v", what, err, text, b.complaints())
		}
	}
}

// run runs one action in the tab, which outlives its time.
func run(ctx context.Context, within time.Duration, action chromedp.Action) error {
	return chromedp.Run(ctx, chromedp.ActionFunc(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return action.Do(ctx)
	}))
}

// see waits until an element shows a text.
func (b *browser) see(selector, text string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		expression := fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) => e.innerText.includes(%q))`, selector, text)
		for {
			var is bool
			if err := chromedp.Evaluate(expression, &is).Do(ctx); err != nil {
				return err
			}
			if is {
				return nil
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s does not show %q: %w", selector, text, ctx.Err())
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
}

// seeInFrame waits until the frame in the page, which is a target of its own, shows a text.
func (b *browser) seeInFrame(text string) {
	b.t.Helper()
	var shown string
	for deadline := time.Now().Add(viewWithin); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		targets, err := chromedp.Targets(b.ctx)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, target := range targets {
			if target.Type != "iframe" {
				continue
			}
			frame, cancel := chromedp.NewContext(b.ctx, chromedp.WithTargetID(target.TargetID))
			within, end := context.WithTimeout(frame, 10*time.Second)
			err := chromedp.Run(within, chromedp.Evaluate("document.body.innerText", &shown))
			end()
			if err == nil && strings.Contains(shown, text) {
				b.t.Cleanup(cancel) // which closes the frame
				return
			}
			shown += fmt.Sprint(" ", err)
			cancel()
		}
	}
	b.picture("failed", 1280)
	b.t.Fatalf("the frame does not show %q, but %q", text, shown)
}

func (b *browser) login(d *desk) {
	b.t.Helper()
	b.do("log in", chromedp.WaitVisible("#token"), chromedp.SetValue("#token", d.token), chromedp.Click("form.login button"),
		chromedp.WaitNotPresent("#token"))
}

// picture keeps a picture of the whole page at a width, in SCREENSHOTS, and finds out whether it is too wide.
func (b *browser) picture(name string, width int64) {
	b.t.Helper()
	var data []byte
	var wide int64
	err := chromedp.Run(b.ctx, chromedp.EmulateViewport(width, 900), chromedp.Sleep(300*time.Millisecond),
		chromedp.Evaluate(`document.documentElement.scrollWidth`, &wide),
		chromedp.ActionFunc(func(ctx context.Context) (err error) {
			data, err = page.CaptureScreenshot().WithCaptureBeyondViewport(name != "keys").Do(ctx)
			return err
		}), chromedp.EmulateViewport(1280, 900))
	if err != nil {
		b.t.Fatalf("picture %s: %v", name, err)
	}
	if wide > width {
		b.t.Errorf("%s at %d pixels is %d wide: it has to be scrolled sideways", name, width, wide)
	}
	if folder := os.Getenv("SCREENSHOTS"); folder != "" {
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%s-%d.png", name, width)), data, 0o600); err != nil {
			b.t.Error(err)
		}
	}
}
