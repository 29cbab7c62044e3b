package auth

import (
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// clientsMost is how many clients are remembered at once.
const clientsMost = 4096

// Limits bounds how often each client may do something.
type Limits struct {
	perSecond rate.Limit
	burst     int

	mu  sync.Mutex
	all map[string]*rate.Limiter
}

// NewLimits makes limits: so many at once, and so many a second after that.
func NewLimits(perSecond float64, burst int) *Limits {
	return &Limits{perSecond: rate.Limit(perSecond), burst: burst, all: map[string]*rate.Limiter{}}
}

// Allow counts one, and reports whether it was within the limit.
func (l *Limits) Allow(client string) bool { return l.of(client).Allow() }

// Left reports whether one more is within the limit, without counting it.
func (l *Limits) Left(client string) bool { return l.of(client).Tokens() >= 1 }

func (l *Limits) of(client string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	one, known := l.all[client]
	if known {
		return one
	}
	if len(l.all) >= clientsMost {
		now := time.Now()
		for name, other := range l.all { // those who have not come for a while
			if other.TokensAt(now) >= float64(l.burst) {
				delete(l.all, name)
			}
		}
	}
	if len(l.all) >= clientsMost { // an attack with many addresses shares one limit
		client = ""
		if one, known = l.all[client]; known {
			return one
		}
	}
	one = rate.NewLimiter(l.perSecond, l.burst)
	l.all[client] = one
	return one
}

// Client is the address of the client of a request.
func Client(r *http.Request) string { return ClientAt(r.RemoteAddr) }

// ClientAt is the address of a client, without its port.
func ClientAt(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	ip := net.ParseIP(host)
	if ip != nil && ip.To4() == nil { // one client of IPv6 has a whole network
		return ip.Mask(net.CIDRMask(64, 128)).String()
	}
	return host
}
