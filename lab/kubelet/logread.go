package kubelet

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// logOptions are those of the Pod log subresource that a kubelet is handed.
type logOptions struct {
	follow, previous, timestamps bool
	since                        time.Time // zero: from the beginning
	tail                         int64     // lines; below 0: all
	limit                        int64     // bytes; below 0: all
}

// parseLogOptions reads the query that a kube-apiserver sends.
func parseLogOptions(q url.Values, now time.Time) (o logOptions, err error) {
	o = logOptions{tail: -1, limit: -1}
	for name, flag := range map[string]*bool{"follow": &o.follow, "previous": &o.previous, "timestamps": &o.timestamps} {
		if text := q.Get(name); text != "" && err == nil {
			*flag, err = strconv.ParseBool(text)
		}
	}
	seconds := int64(-1)
	for name, n := range map[string]*int64{"tailLines": &o.tail, "limitBytes": &o.limit, "sinceSeconds": &seconds} {
		if text := q.Get(name); text != "" && err == nil {
			*n, err = strconv.ParseInt(text, 10, 64)
		}
	}
	if seconds >= 0 {
		o.since = now.Add(-time.Duration(seconds) * time.Second)
	}
	if text := q.Get("sinceTime"); text != "" && err == nil {
		o.since, err = time.Parse(time.RFC3339, text)
	}
	return o, err
}

// send writes what the options ask for of a log, and flushes before it waits for more.
func (l *containerLog) send(ctx context.Context, w io.Writer, o logOptions) error {
	file, err := l.open()
	if err != nil {
		return err
	}
	defer file.Close()
	size, ended, more := l.state()
	at := l.from
	if !o.since.IsZero() {
		at = l.since(o.since)
	}
	if o.tail >= 0 {
		begin, err := lastLines(file, at, size, o.tail)
		if err != nil {
			return err
		}
		at = begin
	}
	s := &logSender{log: l, w: w, options: o, left: o.limit}
	for {
		if at, err = s.lines(file, at, size, ended); err != nil || s.left == 0 || ended || !o.follow {
			return err
		}
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-more:
		}
		size, ended, more = l.state()
	}
}

// lastLines is where the last so many lines begin in a part of a file.
func lastLines(file io.ReaderAt, from, to, lines int64) (int64, error) {
	const window = 64 << 10
	if lines == 0 {
		return to, nil
	}
	buffer := make([]byte, window)
	for end := to; end > from; {
		begin := max(from, end-window)
		part := buffer[:end-begin]
		if _, err := file.ReadAt(part, begin); err != nil && err != io.EOF {
			return 0, err
		}
		for i := len(part) - 1; i >= 0; i-- {
			if part[i] != '\n' || begin+int64(i) == to-1 { // the last line's own end
				continue
			}
			if lines--; lines == 0 {
				return begin + int64(i) + 1, nil
			}
		}
		end = begin
	}
	return from, nil
}

// logSender writes lines as the options want them.
type logSender struct {
	log     *containerLog
	w       io.Writer
	options logOptions
	left    int64 // bytes that may still be sent; below 0: any number
}

// lines sends the whole lines of a part of the file, and, if the log has ended, the incomplete last one. It returns the
// offset that it has reached.
func (s *logSender) lines(file io.ReaderAt, from, to int64, ended bool) (int64, error) {
	in := bufio.NewReader(io.NewSectionReader(file, from, to-from))
	for at := from; ; {
		line, err := in.ReadBytes('\n')
		if err == io.EOF && (!ended || len(line) == 0) {
			return at, nil
		}
		if err != nil && err != io.EOF {
			return at, err
		}
		written := s.log.timeAt(at)
		at += int64(len(line))
		if written.Before(s.options.since) {
			continue
		}
		if s.options.timestamps {
			line = append([]byte(written.UTC().Format(time.RFC3339Nano)+" "), line...)
		}
		if s.left >= 0 {
			line = line[:min(int64(len(line)), s.left)]
			s.left -= int64(len(line))
		}
		if _, err := s.w.Write(line); err != nil || s.left == 0 {
			return at, err
		}
	}
}
