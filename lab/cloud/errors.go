package cloud

import (
	"fmt"
	"net/http"
)

// apiError is an error of the API.
type apiError struct {
	Code    string        `json:"code"`
	Message string        `json:"message"`
	Details *errorDetails `json:"details,omitempty"`

	status int // HTTP status; 0: by code
}

// errorDetails are the details of invalid_input and deprecated_api_endpoint.
type errorDetails struct {
	Fields       []fieldError `json:"fields,omitempty"`
	Announcement string       `json:"announcement,omitempty"`
}

type fieldError struct {
	Name     string   `json:"name"`
	Messages []string `json:"messages"`
}

func (e *apiError) Error() string { return fmt.Sprintf("%s (%s)", e.Message, e.Code) }

// statuses are the HTTP statuses of error codes. 401, 403, 404, 410, 423 and 429 and the 5xx are documented; the others
// are assumed, and no client in the lab depends on them (hcloud-go reads the code, and of the statuses only 502 and
// 504). The status of a code that is absent here is 422.
var statuses = map[string]int{
	"json_error":                     http.StatusBadRequest,
	"unauthorized":                   http.StatusUnauthorized,
	"forbidden":                      http.StatusForbidden,
	"token_readonly":                 http.StatusForbidden,
	"resource_limit_exceeded":        http.StatusForbidden,
	"not_found":                      http.StatusNotFound,
	"conflict":                       http.StatusConflict,
	"uniqueness_error":               http.StatusConflict,
	"resource_in_use":                http.StatusConflict,
	"server_already_attached":        http.StatusConflict,
	"load_balancer_already_attached": http.StatusConflict,
	"target_already_defined":         http.StatusConflict,
	"firewall_already_applied":       http.StatusConflict,
	"deprecated_api_endpoint":        http.StatusGone,
	"placement_error":                http.StatusPreconditionFailed,
	"resource_unavailable":           http.StatusPreconditionFailed,
	"locked":                         http.StatusLocked,
	"protected":                      http.StatusLocked,
	"rate_limit_exceeded":            http.StatusTooManyRequests,
	"server_error":                   http.StatusInternalServerError,
	"unsupported_error":              http.StatusNotImplemented,
	"bad_gateway":                    http.StatusBadGateway,
	"maintenance":                    http.StatusServiceUnavailable,
	"timeout":                        http.StatusGatewayTimeout,
}

// httpStatus is the status of the error's response.
func (e *apiError) httpStatus() int {
	if e.status != 0 {
		return e.status
	}
	if status, ok := statuses[e.Code]; ok {
		return status
	}
	return http.StatusUnprocessableEntity
}

// refuse returns an error of any code.
func refuse(code, format string, args ...any) *apiError {
	return &apiError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// invalid returns an invalid_input error about one field.
func invalid(field, format string, args ...any) *apiError {
	message := fmt.Sprintf(format, args...)
	return &apiError{
		Code:    "invalid_input",
		Message: fmt.Sprintf("invalid input in field '%s': %s", field, message),
		Details: &errorDetails{Fields: []fieldError{{Name: field, Messages: []string{message}}}},
	}
}

// notFound returns the error for a resource that does not exist.
func notFound(kind string, id any) *apiError {
	return refuse("not_found", "%s with ID '%v' not found", kind, id)
}
