package cloud

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// LoggedRequest is one line of the request log. It never holds a header other than the user agent,
// a query or a body, hence no token and no user data.
type LoggedRequest struct {
	Time   time.Time `json:"time"`
	Method string    `json:"method"`
	Path   string    `json:"path"`
	Status int       `json:"status"` // of the reply, even if a fault lost it; 0: there was none
	Actor  string    `json:"actor"`  // user agent
	Write  bool      `json:"write"`  // could have changed something
	Fault  FaultKind `json:"fault,omitempty"`
}

// requestLog appends lines to a file.
type requestLog struct {
	mu   sync.Mutex
	file *os.File // nil: no log
}

func openRequestLog(path string) (*requestLog, error) {
	if path == "" {
		return &requestLog{}, nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the simulated cloud's request log: %w", err)
	}
	return &requestLog{file: file}, nil
}

func (l *requestLog) add(line LoggedRequest) error {
	if l.file == nil {
		return nil
	}
	data, err := json.Marshal(line)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.file.Write(append(data, '\n'))
	return err
}

func (l *requestLog) close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// logged writes every request to the log, also those that end without a reply. The line is written
// before the reply is complete, so that a client that has its reply finds the line.
func (c *Cloud) logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		watched := &watchedWriter{ResponseWriter: w}
		watched.write = func(status int, fault FaultKind) {
			err := c.requests.add(LoggedRequest{
				Time:   now().UTC(),
				Method: r.Method,
				Path:   r.URL.Path,
				Status: status,
				Actor:  r.UserAgent(),
				Write:  r.Method != http.MethodGet && r.Method != http.MethodHead,
				Fault:  fault,
			})
			if err != nil && !errors.Is(err, os.ErrClosed) {
				c.config.Log.Warn("the simulated cloud's request log cannot be written", "error", err)
			}
		}
		defer watched.log(0) // no reply was written
		next.ServeHTTP(watched, r)
	})
}

// watchedWriter logs once, when the status is known or a fault suppresses the reply.
type watchedWriter struct {
	http.ResponseWriter
	write func(status int, fault FaultKind)
	fault FaultKind
	once  sync.Once
}

func (w *watchedWriter) log(status int) { w.once.Do(func() { w.write(status, w.fault) }) }

func (w *watchedWriter) WriteHeader(status int) {
	w.log(status)
	w.ResponseWriter.WriteHeader(status)
}

// Hijack lets a fault reset the connection.
func (w *watchedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}
