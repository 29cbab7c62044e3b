package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

// written is a log to which a test writes, one look after the other.
type written struct {
	*containerLog
	t    *testing.T
	file *os.File
}

func newWritten(t *testing.T, before string) *written {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.log")
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return &written{newContainerLog(path, int64(len(before))), t, file}
}

// write appends a text, which a look then finds at a time.
func (w *written) write(text string, at time.Time) {
	w.t.Helper()
	if _, err := io.WriteString(w.file, text); err != nil {
		w.t.Fatal(err)
	}
	w.note(at, false)
}

func (w *written) read(o logOptions) string {
	w.t.Helper()
	var b strings.Builder
	if err := w.send(w.t.Context(), &b, o); err != nil {
		w.t.Fatal(err)
	}
	return b.String()
}

func TestLogOptions(t *testing.T) {
	w := newWritten(t, "of the run before\n")
	begin := time.Now().Add(-time.Hour).Truncate(time.Second)
	w.write("one\ntwo\n", begin)
	w.write("three\n", begin.Add(time.Minute))
	w.write("four\nfi", begin.Add(2*time.Minute))
	for query, want := range map[string]string{
		"":             "one\ntwo\nthree\nfour\n",
		"tailLines=0":  "",
		"tailLines=2":  "three\nfour\n",
		"tailLines=99": "one\ntwo\nthree\nfour\n",
		"limitBytes=6": "one\ntw",
		"tailLines=2&timestamps=true": begin.Add(time.Minute).UTC().Format(time.RFC3339Nano) + " three\n" +
			begin.Add(2*time.Minute).UTC().Format(time.RFC3339Nano) + " four\n",
		"sinceTime=" + url.QueryEscape(begin.Add(30*time.Second).Format(time.RFC3339)):             "three\nfour\n",
		"sinceTime=" + url.QueryEscape(begin.Add(90*time.Second).Format(time.RFC3339)):             "four\n",
		"sinceTime=" + url.QueryEscape(begin.Add(9*time.Hour).Format(time.RFC3339)):                "",
		"tailLines=3&sinceTime=" + url.QueryEscape(begin.Add(90*time.Second).Format(time.RFC3339)): "four\n",
		"sinceSeconds=" + fmt.Sprint(int(time.Since(begin.Add(time.Minute)).Seconds())+10):         "three\nfour\n",
		"timestamps=true&limitBytes=4": begin.UTC().Format(time.RFC3339Nano)[:4],
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		o, err := parseLogOptions(q, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		// A line without its end is being written: the last two are "four" and a piece of "five".
		if query == "tailLines=2" || query == "tailLines=2&timestamps=true" {
			o.tail = 3
		}
		if got := w.read(o); got != want {
			t.Errorf("%s: %q; want %q", query, got, want)
		}
	}
	w.note(time.Now(), true)
	if got := w.read(logOptions{tail: 2, limit: -1}); got != "four\nfi" {
		t.Errorf("the end of a log that has ended: %q", got)
	}
	for _, query := range []string{"follow=perhaps", "tailLines=few", "sinceTime=once"} {
		q, _ := url.ParseQuery(query)
		if _, err := parseLogOptions(q, time.Now()); err == nil {
			t.Errorf("%s is taken", query)
		}
	}
}

// TestLogGoesOnWhereAReaderStopped reads a log in pieces, as a client whose connection breaks does: from
// the time of the last line that it has.
func TestLogGoesOnWhereAReaderStopped(t *testing.T) {
	w := newWritten(t, "")
	var want strings.Builder
	begin := time.Now().Add(-time.Hour)
	for i := range 300 {
		line := fmt.Sprintf("line %d\n", i)
		want.WriteString(line)
		w.write(line+line[:4]+" again "+line, begin.Add(time.Duration(i/7)*noteEvery))
		want.WriteString(line[:4] + " again " + line)
	}
	var got strings.Builder
	last := time.Time{}
	for range 10_000 {
		text := w.read(logOptions{tail: -1, limit: 400, timestamps: true, since: last})
		news := false
		for line := range strings.Lines(text) {
			stamp, rest, ok := strings.Cut(line, " ")
			at, err := time.Parse(time.RFC3339Nano, stamp)
			if !ok || err != nil || !strings.HasSuffix(rest, "\n") { // cut off by the limit
				break
			}
			if at.After(last) {
				news, last = true, at
				got.WriteString(rest)
			}
		}
		if !news {
			break
		}
	}
	if got.String() != want.String() {
		t.Errorf("read in pieces, the log has %d bytes; want %d", got.Len(), want.Len())
	}
}

func TestLogIsFollowedToItsEnd(t *testing.T) {
	w := newWritten(t, "")
	ctx, end := context.WithCancel(t.Context())
	kept := make(chan struct{})
	go func() { defer close(kept); w.keep(ctx) }()
	out, in := io.Pipe()
	sent := make(chan error, 1)
	go func() { sent <- w.send(t.Context(), in, logOptions{follow: true, tail: -1, limit: -1}); in.Close() }()
	lines := make([]byte, 8)
	for _, line := range []string{"line 1\n", "line 2\n"} {
		if _, err := io.WriteString(w.file, line); err != nil {
			t.Fatal(err)
		}
		if n, err := io.ReadAtLeast(out, lines, len(line)); err != nil || string(lines[:n]) != line {
			t.Fatalf("%q, %v; want %q while the log continues", lines[:n], err, line)
		}
	}
	if _, err := io.WriteString(w.file, "last words"); err != nil {
		t.Fatal(err)
	}
	end()
	<-kept
	rest, err := io.ReadAll(out)
	if err != nil || string(rest) != "last words" {
		t.Errorf("%q, %v; want what the program wrote last", rest, err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestLogMarksAreBounded(t *testing.T) {
	w := newWritten(t, "")
	begin := time.Now()
	for i := range maxMarks + 10 {
		w.marks = append(w.marks, logMark{int64(i), begin.Add(time.Duration(i) * time.Second)})
	}
	w.marks = thinned(w.marks)
	if len(w.marks) > maxMarks*3/4+10 {
		t.Errorf("%d marks are left", len(w.marks))
	}
	if last := w.marks[len(w.marks)-1]; last.to != maxMarks+9 {
		t.Errorf("the last mark is %v", last)
	}
	for i := 1; i < len(w.marks); i++ {
		if w.marks[i].to <= w.marks[i-1].to {
			t.Fatalf("marks %d and %d are out of order", i-1, i)
		}
	}
}

// TestLogOfARunThatEnded reads the present log of a container in a crash loop and that of the run before.
func TestLogOfARunThatEnded(t *testing.T) {
	w := start(t, func(c *Config) {
		c.Programs = []Program{player(t, "example.org/short", "-say=these are the words of {pod}", "-exit=3")}
	})
	w.create(newTestPod("short", "example.org/short"))
	w.create(newTestPod("unknown", "example.org/unknown"))
	w.awaitPod("short", "the container was started twice", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount >= 2
	})
	const want = "these are the words of short\n"
	c, err := w.findContainer("default", "short", "main")
	if err != nil {
		t.Fatal(err)
	}
	log, err := c.logOf(true)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := log.send(t.Context(), &b, logOptions{tail: -1, limit: -1, follow: true}); err != nil || b.String() != want {
		t.Errorf("the run before said %q, %v; want %q, and nothing of the others", b.String(), err, want)
	}
	if c, err = w.findContainer("default", "unknown", "main"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.logOf(false); err == nil ||
		!strings.Contains(err.Error(), "is simulated: the lab has no program for image example.org/unknown") {
		t.Errorf("a simulated container's log: %v", err)
	}
	if _, err := w.findContainer("default", "short", "other"); err == nil {
		t.Error("a container that is not there has a log")
	}
}

// podLogs reads a log as kubectl does, through the apiserver.
func podLogs(t *testing.T, admin kubernetes.Interface, pod string, o *corev1.PodLogOptions) (string, error) {
	t.Helper()
	stream, err := admin.CoreV1().Pods("default").GetLogs(pod, o).Stream(t.Context())
	if err != nil {
		return "", err
	}
	defer stream.Close()
	b, err := io.ReadAll(stream)
	return string(b), err
}

// logs reads logs through the kube-apiserver, after the kubelet has its serving certificate, and as a user without
// permission.
func logs(t *testing.T, admin kubernetes.Interface, k *Kubelet, pod string) {
	t.Helper()
	eventually(t, "the log is served", func() (string, bool) {
		said, err := podLogs(t, admin, pod, &corev1.PodLogOptions{Container: "hook"})
		return fmt.Sprint(said, err), err == nil && said == "the hook speaks\n"
	})
	if _, err := podLogs(t, admin, pod, &corev1.PodLogOptions{Container: "beside"}); err == nil ||
		!strings.Contains(err.Error(), "is simulated") {
		t.Errorf("the log of a simulated container: %v", err)
	}
	if _, err := podLogs(t, admin, pod, &corev1.PodLogOptions{Container: "hook", Previous: true}); err == nil ||
		!strings.Contains(err.Error(), "previous terminated container") {
		t.Errorf("the log of a run before the first: %v", err)
	}
	addr, ok := k.cfg.Registry.Kubelet("test", k.cfg.Node)
	if !ok {
		t.Fatal("the kubelet's API is not registered")
	}
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true}) // nothing is said to it
	if err == nil {
		_, err = conn.Read(make([]byte, 1)) // with TLS 1.3 a client hears of a refusal when it reads
		conn.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("a client without a certificate: %v; want a refusal", err)
	}
}
