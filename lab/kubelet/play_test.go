package kubelet

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// playWord as the first argument makes the test binary a program that runs for a Pod.
const playWord = "play-a-pod"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == playWord {
		if err := play(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(apartVar) != "" {
		os.Exit(runApart(m))
	}
	os.Exit(m.Run())
}

// player maps an image to this binary.
func player(t testing.TB, image string, args ...string) Program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Program{Image: image, Exec: self, Prefix: []string{playWord}, Args: args}
}

// play is the program. It serves /readyz, /healthz, /sick (healthz fails from then on), /self (its arguments and
// environment), /read (a file), /fetch (an address's answer) and /validate (a webhook that refuses ConfigMaps whose data
// has the key "forbidden") until it is asked to end.
func play(args []string) error {
	f := flag.NewFlagSet("play", flag.ContinueOnError)
	address := f.String("address", "", "where to serve")
	certs := f.String("certs", "", "folder of tls.crt and tls.key, read again for every connection")
	code := f.Int("exit", -1, "end at once with this code")
	says := f.String("say", "", "say this before")
	stubborn := f.Bool("stubborn", false, "take no SIGTERM for an answer")
	appendTo := f.String("append", "", "append the word in -say to this file")
	f.String("ignored", "", "")
	if err := f.Parse(args); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, *says)
	if *appendTo != "" {
		file, err := os.OpenFile(*appendTo, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		fmt.Fprintln(file, *says)
		file.Close()
	}
	if *code >= 0 {
		os.Exit(*code)
	}
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM)
	if *stubborn {
		ends = nil
	}
	if *address == "" {
		<-ends
		return nil
	}
	l, err := net.Listen("tcp", *address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: playHandler(args)}
	go func() {
		if *certs != "" {
			err = server.ServeTLS(l, filepath.Join(*certs, "tls.crt"), filepath.Join(*certs, "tls.key"))
		} else {
			err = server.Serve(l)
		}
	}()
	<-ends
	return server.Close()
}

// get returns the text at an address.
func get(address string) (string, error) {
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get(address)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", address, answer.Status, text)
	}
	return string(text), err
}

// given is the answer of /self.
type given struct {
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`
}

func playHandler(args []string) http.Handler {
	var sick atomic.Bool
	mux := http.NewServeMux()
	ok := func(w http.ResponseWriter, _ *http.Request) {
		if sick.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}
	mux.HandleFunc("/readyz", ok)
	mux.HandleFunc("/healthz", ok)
	mux.HandleFunc("/sick", func(http.ResponseWriter, *http.Request) { sick.Store(true) })
	mux.HandleFunc("/self", func(w http.ResponseWriter, _ *http.Request) {
		dir, _ := os.Getwd()
		_ = json.NewEncoder(w).Encode(given{Args: args, Env: os.Environ(), Dir: dir})
	})
	mux.HandleFunc("/read", func(w http.ResponseWriter, r *http.Request) {
		text, err := os.ReadFile(r.URL.Query().Get("path"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		_, _ = w.Write(text)
	})
	mux.HandleFunc("/fetch", func(w http.ResponseWriter, r *http.Request) {
		text, err := get(r.URL.Query().Get("url"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		fmt.Fprint(w, text)
	})
	mux.HandleFunc("/validate", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var review struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Request    struct {
				UID    string `json:"uid"`
				Object struct {
					Data map[string]string `json:"data"`
				} `json:"object"`
			} `json:"request"`
		}
		if err := json.Unmarshal(body, &review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, forbidden := review.Request.Object.Data["forbidden"]
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": review.APIVersion, "kind": review.Kind,
			"response": map[string]any{
				"uid": review.Request.UID, "allowed": !forbidden, "status": map[string]any{"message": "the player refuses"},
			},
		})
	})
	return mux
}
