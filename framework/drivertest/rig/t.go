package rig

// T is what a rig reports to: a *testing.T, or a check of package drivertest.
// Fatal and Fatalf do not return.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}
