// Package adminpb is the admin API of a running nicd, generated from
// admin.proto. What serves it lives in package daemon, what prints its messages
// in package console.
package adminpb

//go:generate protoc --proto_path=. --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative admin.proto
