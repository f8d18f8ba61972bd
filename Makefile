# The commands of the README. Everything is built without cgo.

export CGO_ENABLED = 0
export GOTOOLCHAIN = auto
export PATH := $(PATH):/usr/local/go/bin

VERSION := $(shell git describe --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
# The Debian 13 machine runs less, so that CI stays under an hour without KVM.
E2E_13 ?= small
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: all build demo test race check bench install packages clean help e2e e2e-breaks

all: build

help: ## say what each command does
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | expand -t 12

packages: ## install the Debian packages that building and testing need
	@deploy/packages build

build: ## build chatd and chatd-shim into bin/
	go build -trimpath -ldflags "$(LDFLAGS)" -o bin/ ./cmd/chatd ./cmd/chatd-shim

demo: packages build ## do the main job on real input, in namespaces of its own
	go build -trimpath -ldflags "$(LDFLAGS)" -o bin/demo ./examples/bridge
	bin/demo

test: packages ## run all tests; root's need root
	test/all

e2e: packages ## make chatd hosts of a Debian 12 and a 13 machine and test those; E2E_13=full
	test/vagrant/e2e bookworm full
	test/vagrant/e2e trixie $(E2E_13)

e2e-breaks: packages ## show that the tests of e2e fail when a wall is broken
	test/vagrant/e2e-breaks bookworm

race: packages ## the tests in which callers race, under the race detector
	CGO_ENABLED=1 go test -race -short ./files && CGO_ENABLED=1 go test -race ./chat ./state ./api ./cmd/chatd ./provision
	CGO_ENABLED=1 go test -race -timeout 20m -run 'CreateReapRace|CreateAtOnce' ./test/roottest

check: packages ## formatting, vet, staticcheck, and the builds for other systems
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not gofmt-clean:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	go vet ./...
	go vet -tags failpoints ./provision ./cmd/chatd
	go run $(STATICCHECK) ./...
	go vet -tags e2e ./test/vagrant
	GOOS=darwin go vet ./chat ./api ./state ./netpolicy ./access ./files ./cmd/chatd
	GOOS=windows go vet ./chat ./api ./access ./files ./cmd/chatd
	GOARCH=arm64 go build -o /dev/null ./...
	go mod verify >/dev/null && go mod tidy -diff

bench: packages ## measure the life of a chat beside its rivals, at 0, 1,000 and 10,000 chats
	go test -run '^$$' -bench . -benchtime 1x -timeout 60m ./test/roottest
	go test -run '^$$' -bench Packet -timeout 20m ./netpolicy

install: build ## install the programs under /usr/local
	install -D -m 0755 bin/chatd /usr/local/sbin/chatd
	install -D -m 0755 bin/chatd-shim /usr/local/lib/chatd/chatd-shim

clean: ## remove what was built
	rm -rf bin
