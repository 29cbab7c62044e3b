package factory

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"go.yaml.in/yaml/v3"
)

// longestReply bounds what is read of the factory's answer.
const longestReply = 64 << 10

// Register tells the factory at an address of a schematic, without which it has no image for the schematic's id.
// Posting it again changes nothing. Another id than ours is an error.
func Register(ctx context.Context, address string, s Schematic) error {
	id, err := s.ID()
	if err != nil {
		return err
	}
	body, err := yaml.Marshal(s)
	if err != nil {
		return fmt.Errorf("write the schematic: %w", err)
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/schematics", bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/yaml")
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return fmt.Errorf("tell the Image Factory of the schematic: %w", err)
	}
	defer r.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(r.Body, longestReply))
	if err != nil {
		return fmt.Errorf("tell the Image Factory of the schematic: %w", err)
	}
	if r.StatusCode/100 != 2 {
		return fmt.Errorf("the Image Factory at %s does not take the schematic: %s: %s", address, r.Status,
			bytes.TrimSpace(answer))
	}
	var made struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(answer, &made); err != nil {
		return fmt.Errorf("the Image Factory at %s took the schematic and answers %q: %w", address, answer, err)
	}
	if made.ID != id {
		return fmt.Errorf("the Image Factory at %s calls the schematic %s, not %s: it may write schematics in another "+
			"way now; please report this", address, made.ID, id)
	}
	return nil
}
