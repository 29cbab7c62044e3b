package kubetest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
)

// forward plays a kubelet's port forwarding: every stream with data becomes a connection to Forward's address.
func (s *Server) forward(w http.ResponseWriter, r *http.Request, path string) {
	words := strings.Split(strings.Trim(path, "/"), "/") // api v1 namespaces N pods P portforward
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return
	}
	streams := make(chan httpstream.Stream, 4)
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(st httpstream.Stream, _ <-chan struct{}) error {
		streams <- st
		return nil
	})
	if connection == nil {
		return
	}
	defer connection.Close()
	var failed httpstream.Stream
	for {
		select {
		case <-connection.CloseChan():
			return
		case st := <-streams:
			if st.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
				failed = st
				continue
			}
			go relay(st, failed, s.Forward(words[3], words[5], st.Headers().Get(corev1.PortHeader)))
		}
	}
}

// relay connects a stream with an address, and says on the other stream why it cannot.
func relay(data, failed httpstream.Stream, address string) {
	defer failed.Close()
	defer data.Close()
	c, err := net.Dial("tcp", address)
	if err != nil {
		fmt.Fprintf(failed, "no process listens: %v", err)
		_ = data.Reset()
		return
	}
	defer c.Close()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(c, data)
		_ = c.(*net.TCPConn).CloseWrite()
	})
	_, _ = io.Copy(data, c)
	_ = data.Reset()
	both.Wait()
}
