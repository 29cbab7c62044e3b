package kube

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// maxLogLine is how much of a line is kept, in bytes. Container runtimes break lines at 16 KiB.
const maxLogLine = 64 << 10

// LogLine is one line of a container's log.
type LogLine struct {
	Time      time.Time
	Namespace string
	Pod       string
	Container string
	Text      string // without its end
}

// LogRequest says which part of a container's log is wanted.
type LogRequest struct {
	Namespace, Pod, Container string

	After    time.Time // only lines that were written later; zero: from the beginning
	Lines    int64     // the last so many; below 0: all
	Follow   bool      // continue until the container ends
	Previous bool      // of the run before the present one
}

// LogStream is a log that is being read.
type LogStream struct {
	request LogRequest
	body    io.ReadCloser
	in      *bufio.Reader
}

// OpenLog opens a container's log. An error that Refused tells of comes from the kubelet, in plain language.
func (c *Cluster) OpenLog(ctx context.Context, r LogRequest) (*LogStream, error) {
	api, err := typedcorev1.NewForConfigAndClient(c.config, c.http)
	if err != nil {
		return nil, fmt.Errorf("create a client for %s: %w", c.Host(), err)
	}
	o := &corev1.PodLogOptions{Container: r.Container, Follow: r.Follow, Previous: r.Previous, Timestamps: true}
	if !r.After.IsZero() { // sent as whole seconds
		o.SinceTime = &metav1.Time{Time: r.After.Truncate(time.Second)}
	}
	if r.Lines >= 0 {
		o.TailLines = &r.Lines
	}
	body, err := api.Pods(r.Namespace).GetLogs(r.Pod, o).Stream(ctx)
	if err != nil {
		return nil, err
	}
	return &LogStream{request: r, body: body, in: bufio.NewReaderSize(body, maxLogLine)}, nil
}

// Next returns the next line, and io.EOF behind the last.
func (s *LogStream) Next() (LogLine, error) {
	for {
		text, err := s.line()
		if err != nil {
			return LogLine{}, err
		}
		line := LogLine{Namespace: s.request.Namespace, Pod: s.request.Pod, Container: s.request.Container, Text: text}
		if stamp, rest, ok := strings.Cut(text, " "); ok {
			if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
				line.Time, line.Text = at, rest
			}
		}
		if line.Time.IsZero() || line.Time.After(s.request.After) {
			return line, nil
		}
	}
}

// line reads a line; of one that is too long the beginning.
func (s *LogStream) line() (string, error) {
	data, err := s.in.ReadSlice('\n')
	text := string(data)
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = s.in.ReadSlice('\n')
	}
	if err == io.EOF && text != "" {
		err = nil
	}
	return strings.TrimRight(text, "\r\n"), err
}

// Close ends the reading.
func (s *LogStream) Close() error { return s.body.Close() }
