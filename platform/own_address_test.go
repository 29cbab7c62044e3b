package platform

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestOwnAddress(t *testing.T) {
	answer := "203.0.113.7\n"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = w.Write([]byte(answer))
	}))
	defer s.Close()
	if a, err := askAddress(t.Context(), s.URL); err != nil || a.String() != "203.0.113.7" {
		t.Errorf("got %v, %v", a, err)
	}
	answer = "<html>please log in</html>"
	if a, err := askAddress(t.Context(), s.URL); err == nil {
		t.Errorf("a login page is %v", a)
	}
}
