package talos

import (
	"context"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// roleKey is the metadata by which apid passes the caller's roles to machined and to the apid of another node.
const roleKey = "talos-role"

// allowedRoles are the roles that may make a call; other calls need os:admin.
func allowedRoles(method string) role.Set {
	switch method {
	case machine.MachineService_Version_FullMethodName,
		machine.MachineService_Hostname_FullMethodName,
		machine.MachineService_ServiceList_FullMethodName,
		machine.MachineService_List_FullMethodName,
		machine.MachineService_Events_FullMethodName:
		return role.MakeSet(role.Admin, role.Operator, role.Reader)
	case machine.MachineService_EtcdMemberList_FullMethodName,
		machine.MachineService_EtcdStatus_FullMethodName:
		return role.MakeSet(role.Admin, role.Operator, role.Reader, role.EtcdBackup)
	case machine.MachineService_EtcdSnapshot_FullMethodName:
		return role.MakeSet(role.Admin, role.Operator, role.EtcdBackup)
	case machine.MachineService_Reboot_FullMethodName,
		machine.MachineService_Shutdown_FullMethodName:
		return role.MakeSet(role.Admin, role.Operator)
	default:
		return role.MakeSet(role.Admin)
	}
}

// peerRoles returns the roles of the client's certificate: its organizations. A client with the impersonator role, as
// the apid of another node, passes the roles of its caller.
func peerRoles(ctx context.Context, md metadata.MD) role.Set {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return role.Zero
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return role.Zero
	}
	roles, _ := role.Parse(info.State.PeerCertificates[0].Subject.Organization)
	if told := md.Get(roleKey); len(told) > 0 && roles.Includes(role.Impersonator) {
		roles, _ = role.Parse(told)
	}
	return roles
}

// authorize checks the roles that apid has put into the metadata.
func authorize(ctx context.Context, method string) error {
	md, _ := metadata.FromIncomingContext(ctx)
	roles, _ := role.Parse(md.Get(roleKey))
	if !allowedRoles(method).IncludesAny(roles) {
		return status.Error(codes.PermissionDenied, "not authorized")
	}
	return nil
}

func authorizeUnary(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	if err := authorize(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return handle(ctx, request)
}

func authorizeStream(
	server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler,
) error {
	if err := authorize(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	return handle(server, stream)
}
