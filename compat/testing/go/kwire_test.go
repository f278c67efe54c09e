package orders

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Kwire is a broker in a process of its own, and its control port.
type Kwire struct {
	URL, Token       string
	BootstrapServers string `json:"bootstrap_servers"`
}

// Start runs a broker until the test ends.
func Start(t *testing.T) *Kwire {
	t.Helper()
	file := filepath.Join(t.TempDir(), "control.json")
	command := exec.Command("kwire", "serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--control-file", file)
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(os.Interrupt)
		_ = command.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "kwire ready ") {
		t.Fatalf("the broker does not start: %q %v", line, err)
	}
	told, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	kwire := &Kwire{}
	if err := json.Unmarshal(told, kwire); err != nil {
		t.Fatal(err)
	}
	return kwire
}

// Do sends a request to the control port and decodes the answer.
func (k *Kwire) Do(method, path string, body, answer any) error {
	var sent bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&sent).Encode(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequest(method, k.URL+path, &sent)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+k.Token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		var refused struct{ Error string }
		if err := json.NewDecoder(response.Body).Decode(&refused); err != nil {
			return fmt.Errorf("status %d", response.StatusCode)
		}
		return errors.New(refused.Error)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

// Must is Do for what is possible.
func (k *Kwire) Must(t *testing.T, method, path string, body, answer any) {
	t.Helper()
	if err := k.Do(method, path, body, answer); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
}
