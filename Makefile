# The commands of the README. Everything is built without cgo.

export CGO_ENABLED = 0
export GOTOOLCHAIN = auto
export PATH := $(PATH):/usr/local/go/bin

VERSION := $(shell git describe --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
# How much the machines run: full, small or brief; see test/vagrant/e2e.
E2E_12 ?= full
E2E_13 ?= small
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
ERRCHECK := github.com/kisielk/errcheck@v1.20.0
DEADCODE := golang.org/x/tools/cmd/deadcode@v0.52.0
LICENCES := github.com/google/go-licenses@v1.6.0
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0

.PHONY: all build demo test test-long soak test-agents race check layout bench install packages clean help e2e e2e-breaks

all: build

help: ## say what each command does
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | expand -t 12

packages: ## install the Debian packages that building and testing need
	@deploy/packages build

build: ## build chatd and the programs beside it into bin/
	go build -trimpath -ldflags "$(LDFLAGS)" -o bin/ ./cmd/chatd ./cmd/chatd-root ./cmd/chatd-enforce ./cmd/chatd-egress \
		./cmd/chatd-shim ./cmd/chatd-archive

demo: packages build ## do the main job on real input, in namespaces of its own
	go build -trimpath -ldflags "$(LDFLAGS)" -o bin/demo ./examples/bridge
	bin/demo

test: packages ## run all tests; root's need root
	test/all

test-long: packages ## what is random or repeated, with many more rounds
	test/all long

soak: packages ## 500 chats of 20 owners for 20 minutes: what grows, the latencies, and bin/soak.svg
	mkdir -p bin
	CHATD_TEST_SOAK_FOR=20m CHATD_TEST_SOAK_PLOT=$(CURDIR)/bin/soak.svg CHATD_TEST_REQUIRE=all go test -count 1 -timeout 60m -v -run '^TestSoakLife$$' ./test/roottest

test-agents: packages ## with programs of npm's registry: agents in a terminal, generated clients
	test/all agents

e2e: packages ## make chatd hosts of a Debian 12 and a 13 machine and test those; E2E_13=full
	test/vagrant/e2e bookworm $(E2E_12)
	test/vagrant/e2e trixie $(E2E_13)

e2e-breaks: packages ## show that the tests of e2e fail when a wall is broken
	test/vagrant/e2e-breaks bookworm

race: packages ## the tests in which callers race, under the race detector
	test/all race

# govet's shadow pass is not run. On 28 November 2026 it had 495 warnings, most of them about the err
# of an if. Some 40 of the 50 others were read, and none was a fault. errcheck and staticcheck (SA4006)
# find lost errors.
check: packages ## formatting, vet, lost errors, dead code, vulnerabilities, types on other systems
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not gofmt-clean:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	go vet ./...
	go vet -tags failpoints ./internal/sys ./cmd/chatd-root ./cmd/chatd-enforce
	go run $(STATICCHECK) ./...
	go run $(ERRCHECK) -ignoretests -exclude test/errcheck.txt ./...
	go run $(ERRCHECK) -ignoretests -exclude test/errcheck.txt -tags failpoints ./internal/sys ./cmd/chatd-root ./cmd/chatd-enforce
	test/deadcode $(DEADCODE)
	test/vulnerabilities $(GOVULNCHECK)
	test/licences $(LICENCES)
	go vet -tags e2e ./test/vagrant
	test/types darwin/arm64 ./chat ./client ./front/api ./state ./netpolicy ./filerules ./cmd/chatd
	test/types windows/amd64 ./chat ./client ./front/api ./filerules ./cmd/chatd
	test/types linux/arm64 ./...
	go mod verify >/dev/null && go mod tidy -diff

layout: ## print what each program links and reaches, and the sizes of packages
	go test -count 1 -v -run 'TestSizes|TestWords|StaysSmall' ./test/layout | sed -n 's/^ *[a-z]*_test.go:[0-9]*: //p'

bench: packages ## measure the life of a chat beside its rivals at 0, 1,000 and 10,000 chats, and file rules and tools
	go test -run '^$$' -bench . -benchtime 1x -timeout 60m ./test/roottest
	go test -run '^$$' -bench Packet -timeout 20m ./netpolicy
	go test -run '^$$' -bench 'Explain|Ratio|CheckCommand' -timeout 20m ./filerules ./internal/shell ./shims/files ./provision

install: build ## install the programs under /usr/local
	install -D -m 0755 bin/chatd /usr/local/sbin/chatd
	install -D -m 0755 -t /usr/local/lib/chatd bin/chatd-root bin/chatd-enforce bin/chatd-egress \
		bin/chatd-shim bin/chatd-archive
	install -D -m 0644 -t /usr/local/share/chatd internal/config/configfile/defaults.yaml

clean: ## remove what was built
	rm -rf bin
