package serve

import (
	"embed"
	"net/http"
)

//go:embed page openapi.json
var files embed.FS

// asset answers with an embedded file.
func asset(name, kind string) http.HandlerFunc {
	data, err := files.ReadFile(name)
	if err != nil {
		panic(err) // the name is a constant of this package
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(data)
	}
}
