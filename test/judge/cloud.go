package judge

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// cloudResources are all resources of the API that clients can create, with the query that excludes Hetzner's own.
func cloudResources() map[string]string {
	return map[string]string{
		"servers": "", "networks": "", "load_balancers": "", "placement_groups": "", "ssh_keys": "", "firewalls": "",
		"primary_ips": "", "volumes": "", "images": "&type=snapshot",
	}
}

// readCloud reads all resources over the API.
func readCloud(ctx context.Context, endpoint, token string) (map[string][]Object, error) {
	found := map[string][]Object{}
	for resource, query := range cloudResources() {
		for page := 1; page > 0; {
			objects, next, err := readPage(ctx, fmt.Sprintf("%s/%s?page=%d&per_page=50%s", endpoint, resource, page, query),
				token, resource)
			if err != nil {
				return nil, fmt.Errorf("read %s of the cloud: %w", resource, err)
			}
			found[resource], page = append(found[resource], objects...), next
		}
	}
	return found, nil
}

// answerWithin is how long the lab may take to answer one request: the judge observes right after a run, on a machine
// that may still be busy with it.
const answerWithin = time.Minute

// readPage reads one page; next is 0 after the last.
func readPage(ctx context.Context, url, token, resource string) (objects []Object, next int, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, 0, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("User-Agent", agent)
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return nil, 0, fmt.Errorf("it answers %s", reply.Status)
	}
	var body map[string]json.RawMessage
	var meta struct {
		Pagination struct {
			Next *int `json:"next_page"`
		} `json:"pagination"`
	}
	if err := json.NewDecoder(reply.Body).Decode(&body); err != nil {
		return nil, 0, err
	}
	if err := json.Unmarshal(body["meta"], &meta); err != nil {
		return nil, 0, err
	}
	if meta.Pagination.Next != nil {
		next = *meta.Pagination.Next
	}
	// Numbers are not converted: ids are recognized by their digits.
	decoder := json.NewDecoder(strings.NewReader(string(body[resource])))
	decoder.UseNumber()
	return objects, next, decoder.Decode(&objects)
}

// agent is how the judge calls itself.
const agent = "judge"
