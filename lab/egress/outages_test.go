package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// outResolver resolves everything to one address, by the name that the host has.
type outResolver struct {
	addr    string
	outages *Outages
}

func (r outResolver) Resolve(_ context.Context, host string, _ int32) (Backend, error) {
	cut, err := r.outages.admit("c", "ns/"+host)
	return Backend{Addresses: []string{r.addr}, Cut: cut}, err
}

func TestOutage(t *testing.T) {
	addr := listen(t, func(c *net.TCPConn) {
		io.WriteString(c, "hello")
		io.Copy(io.Discard, c)
	})
	outages := NewOutages()
	_, socket := serve(t, outResolver{addr, outages})
	greeted := func(host string) io.Reader {
		t.Helper()
		_, reader, answer := connect(t, socket, host+":443")
		if _, err := io.ReadFull(reader, make([]byte, 5)); err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", host, answer.Status, err)
		}
		return reader
	}
	sick, well := greeted("sick"), greeted("well")

	hits := 0
	end := outages.Begin("c", "ns/si*", func() { hits++ })
	if _, err := sick.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the connection that there was reads on: %v", err)
	}
	if _, _, answer := connect(t, socket, "sick:443"); answer.StatusCode != http.StatusBadGateway ||
		!strings.Contains(answer.Status, "ns/sick does not answer") {
		t.Errorf("during the outage: %s", answer.Status)
	}
	greeted("well")
	unbroken := make(chan error, 1)
	go func() { _, err := well.Read(make([]byte, 1)); unbroken <- err }()
	other := outages.Begin("other", "", func() { t.Error("an outage of another cluster hits") })
	greeted("well")
	end()
	end()
	greeted("sick")
	other()
	select {
	case err := <-unbroken:
		t.Errorf("a connection of another Service broke: %v", err)
	default:
	}
	if hits != 1 {
		t.Errorf("%d hits", hits)
	}
}
