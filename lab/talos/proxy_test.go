package talos

import (
	"errors"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

func TestTagList(t *testing.T) {
	reply := mustMarshal(&machine.HostnameResponse{Messages: []*machine.Hostname{
		{Hostname: "one"},
		{Hostname: "two", Metadata: &common.Metadata{Error: "kept"}},
	}})
	tagged, err := tagList(reply, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	failed := listOf(failure("127.0.0.2", status.Error(codes.Unavailable, "down")))
	var got machine.HostnameResponse
	if err := proto.Unmarshal(append(tagged, failed...), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Messages) != 3 {
		t.Fatalf("%v", &got)
	}
	for i, want := range []*machine.Hostname{
		{Hostname: "one", Metadata: &common.Metadata{Hostname: "127.0.0.1"}},
		{Hostname: "two", Metadata: &common.Metadata{Hostname: "127.0.0.1", Error: "kept"}},
	} {
		if !proto.Equal(got.Messages[i], want) {
			t.Errorf("%v, want %v", got.Messages[i], want)
		}
	}
	m := got.Messages[2].Metadata
	if m.Hostname != "127.0.0.2" || m.Error == "" || codes.Code(m.Status.Code) != codes.Unavailable {
		t.Errorf("a failure: %v", m)
	}
}

func TestTagListRefusesWhatIsNoList(t *testing.T) {
	list := mustMarshal(&machine.HostnameResponse{Messages: []*machine.Hostname{{Hostname: "one"}}})
	for name, reply := range map[string][]byte{
		"another field": {0x12, 0x00}, "a number": {0x08, 0x01}, "cut short": list[:len(list)-1],
	} {
		if _, err := tagList(reply, "127.0.0.1"); status.Code(err) != codes.Internal {
			t.Errorf("%s: %v", name, err)
		}
	}
	if tagged, err := tagList(nil, "127.0.0.1"); err != nil || len(tagged) != 0 {
		t.Errorf("no message: %v, %v", tagged, err)
	}
}

func TestIsStreamed(t *testing.T) {
	for method, want := range map[string]bool{
		machine.MachineService_List_FullMethodName:         true,
		machine.MachineService_EtcdSnapshot_FullMethodName: true,
		machine.MachineService_EtcdRecover_FullMethodName:  false, // the caller streams, the reply is one message
		machine.MachineService_Version_FullMethodName:      false,
	} {
		if got := isStreamed(method); got != want {
			t.Errorf("%s: %v", method, got)
		}
	}
}

func TestFailureKeepsPlainErrors(t *testing.T) {
	var m common.Empty
	if err := proto.Unmarshal(failure("127.0.0.1", errors.New("broken")), &m); err != nil {
		t.Fatal(err)
	}
	if m.Metadata.Error != "broken" || codes.Code(m.Metadata.Status.Code) != codes.Unknown {
		t.Errorf("%v", &m)
	}
}
