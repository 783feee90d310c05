# make test is the test command; the rest is convenience.

GO ?= go

.PHONY: all build test test-guest-drivers test-guest-kernel test-guest-conformance mutants lint setup generate bench bench-run bench-lro bench-tap clean

all: build

build: ## the daemon and the plugins, static
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/ ./cmd/...

setup:
	@sh .ci/setup

test: setup lint ## all tests with the race detector; says how many ran
	CGO_ENABLED=0 GOARCH=arm64 $(GO) build ./...
	CGO_ENABLED=0 GOARCH=amd64 $(GO) build ./...
	@$(GO) test -race -timeout 15m -json ./... | $(GO) run ./internal/testsum

# Heavy, and needs the network: run before a release.
test-guest-drivers: ## the kernel's own NIC drivers on our models; writes docs/guest-drivers.md
	NICD_GUEST_DRIVERS=$(CURDIR)/docs/guest-drivers.md $(GO) test -v -count=1 -timeout 30m -run TestGuestDrivers ./guest

# Heavy, and needs the network: builds a kernel.
test-guest-kernel: ## VFIO as Debian's kernels don't have it: iommufd, and devices without an IOMMU
	NICD_GUEST_KERNEL=1 $(GO) test -v -count=1 -timeout 60m -run 'TestIOMMUFD|TestNoIOMMU' ./guest

# Heavy: minutes.
test-guest-conformance: ## the conformance kit through VFIO, with a NIC of the kernel's as the far end
	NICD_GUEST_CONFORMANCE=1 $(GO) test -v -count=1 -timeout 30m -run 'TestConformance$$' ./guest

mutants: ## deletes lro's rules one by one: the tests have to notice each
	$(GO) run ./internal/mutants

# vet finds mistakes; staticcheck finds more of them and code that nobody uses.
# Style is gofmt's and the reviewer's business. Which package may import which,
# and where unsafe may be used, is a test (internal/rooms).
lint:
	@test -z "$$(gofmt -l . | tee /dev/stderr)" || { echo "run gofmt -w on these"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

generate: ## after a change of a .proto file; needs protoc and its Go plugins
	$(GO) generate ./proto/...

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./lro ./gso ./framework/... ./bus/... ./sim/...

bench-run: ## the quickstart: plugin against in-process, LRO on against off
	$(GO) test -run '^$$' -bench Run -benchtime 5x ./cmd/nicd

bench-lro: ## lro against gVisor, DPDK, Tailscale and wireguard-go; needs cc, pkg-config, libdpdk-dev and the network
	cd bench && $(GO) run ./run

bench-tap: build ## the kernel's TCP through two TAP ports, against a veth pair and DPDK's testpmd; needs root
	@sh .ci/setup "dpdk-testpmd=dpdk-dev librte-meta-net"
	cd bench && $(GO) run ./tap -nicd ../bin/nicd $(BENCH_TAP)

clean:
	rm -rf bin
