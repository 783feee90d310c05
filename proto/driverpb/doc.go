// Package driverpb is the protocol between nicd and a driver plugin: what
// engine.Control says, as gRPC. The conversions to and from the framework's
// types live in package plugin; nothing but generated code lives here.
package driverpb

//go:generate protoc -I. --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative driver.proto
