package daemon

import (
	"context"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"nicd/framework"
	"nicd/framework/plugin"
	"nicd/proto/adminpb"
)

// adminServer is the admin API.
type adminServer struct {
	adminpb.UnimplementedAdminServer
	daemon *Daemon
}

func (a *adminServer) Status(context.Context, *adminpb.StatusRequest) (*adminpb.StatusReply, error) {
	return a.daemon.Status(), nil
}

func (a *adminServer) find(name string) (*netInterface, error) {
	if i := a.daemon.find(name); i != nil {
		return i, nil
	}
	var names []string
	for _, i := range a.daemon.interfaces {
		names = append(names, i.config.Name)
	}
	return nil, status.Errorf(codes.NotFound, "there is no interface %q; there are %s", name, strings.Join(names, ", "))
}

func (a *adminServer) ShowInterface(_ context.Context, r *adminpb.InterfaceRequest) (*adminpb.InterfaceDetail, error) {
	i, err := a.find(r.GetName())
	if err != nil {
		return nil, err
	}
	return i.detail(), nil
}

func (a *adminServer) Explain(_ context.Context, r *adminpb.ExplainRequest) (*adminpb.ExplainReply, error) {
	i, err := a.find(r.GetInterface())
	if err != nil {
		return nil, err
	}
	reply, ok := i.explain(r.GetFeature())
	if !ok && framework.LookupQuirk(r.GetFeature()) != nil {
		return nil, status.Errorf(codes.NotFound, "%s is a quirk, no feature: \"nicd show %s\" has its value and who set it", r.GetFeature(), r.GetInterface())
	}
	if !ok {
		return nil, status.Errorf(codes.NotFound, "there is no feature %q; there are %s", r.GetFeature(), strings.Join(framework.FeatureNames(), ", "))
	}
	return reply, nil
}

func (a *adminServer) Stats(ctx context.Context, r *adminpb.InterfaceRequest) (*adminpb.StatsReply, error) {
	i, err := a.find(r.GetName())
	if err != nil {
		return nil, err
	}
	reply, err := i.stats(ctx)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return reply, nil
}

func (a *adminServer) ListDrivers(context.Context, *adminpb.ListDriversRequest) (*adminpb.ListDriversReply, error) {
	r := &adminpb.ListDriversReply{}
	for _, d := range a.daemon.catalogue.all() {
		r.Drivers = append(r.Drivers, a.driver(d))
	}
	return r, nil
}

func (a *adminServer) LoadDriver(ctx context.Context, r *adminpb.LoadDriverRequest) (*adminpb.Driver, error) {
	if !filepath.IsAbs(r.GetPath()) {
		return nil, status.Errorf(codes.InvalidArgument, "the plugin's path %q is not absolute", r.GetPath())
	}
	d, err := a.daemon.catalogue.load(ctx, r.GetPath(), r.GetSha256(), a.daemon.usersOf)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return a.driver(d), nil
}

func (a *adminServer) UnloadDriver(_ context.Context, r *adminpb.UnloadDriverRequest) (*adminpb.UnloadDriverReply, error) {
	if err := a.daemon.catalogue.unload(r.GetName(), a.daemon.usersOf); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &adminpb.UnloadDriverReply{}, nil
}

// driver says what a driver is and which of the daemon's devices it matches.
func (a *adminServer) driver(d *driver) *adminpb.Driver {
	r := &adminpb.Driver{
		Name: d.name, Version: d.description.Version, Source: d.source(), Sha256: d.sha256,
		Protocol: plugin.ProtocolVersion, Interfaces: a.daemon.usersOf(d.name),
	}
	for _, id := range d.description.IDs {
		entry := &adminpb.DeviceId{Vendor: uint32(id.Vendor), Device: uint32(id.Device), Name: id.Name}
		for _, i := range a.daemon.interfaces {
			if i.deviceID == id.Device {
				entry.Present = append(entry.Present, i.config.Name+" ("+i.address+")")
			}
		}
		r.Devices = append(r.Devices, entry)
	}
	return r
}

func (a *adminServer) ListQuirks(_ context.Context, r *adminpb.ListQuirksRequest) (*adminpb.ListQuirksReply, error) {
	name := r.GetDriver()
	if name != "" && a.daemon.catalogue.get(name) == nil {
		var loaded []string
		for _, d := range a.daemon.catalogue.all() {
			loaded = append(loaded, d.name)
		}
		return nil, status.Errorf(codes.NotFound, "there is no driver %q; loaded are %s", name, strings.Join(loaded, ", "))
	}
	list := Quirks(name)
	for _, d := range a.daemon.catalogue.all() {
		for _, q := range d.description.Knows {
			if framework.LookupQuirk(q.Name) == nil && (name == "" || name == d.name) {
				list = append(list, quirkInfo(&q))
			}
		}
	}
	return &adminpb.ListQuirksReply{Quirks: list}, nil
}

// Quirks are the quirks that this program knows and that mean something to a
// driver; "" is all.
func Quirks(driver string) []*adminpb.QuirkInfo {
	var list []*adminpb.QuirkInfo
	for _, q := range framework.Quirks() {
		if driver == "" || q.For(driver) {
			list = append(list, quirkInfo(q))
		}
	}
	return list
}

func quirkInfo(q *framework.QuirkInfo) *adminpb.QuirkInfo {
	return &adminpb.QuirkInfo{Name: q.Name, Type: q.Type, Default: q.Default, Meaning: q.Doc, Reference: q.Reference, Driver: q.Driver, Live: q.Live, Unsafe: q.Unsafe}
}

func (a *adminServer) SetInterface(ctx context.Context, r *adminpb.SetInterfaceRequest) (*adminpb.ChangeReply, error) {
	var settings []Assignment
	for _, s := range r.GetSettings() {
		settings = append(settings, Assignment{s.GetName(), s.GetValue()})
	}
	reply, err := a.daemon.Set(ctx, r.GetName(), settings, r.GetDryRun())
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return reply, nil
}

func (a *adminServer) Reload(ctx context.Context, r *adminpb.ReloadRequest) (*adminpb.ReloadReply, error) {
	reply, err := a.daemon.Reload(ctx, r.GetDryRun())
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return reply, nil
}
