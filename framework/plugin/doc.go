// Package plugin runs drivers in processes of their own: nicd's half, which
// starts a plugin, talks to it and notices its death ([Start], [Process]), and
// the plugin's half, which is all that a plugin's main calls ([Serve]).
//
// Control is gRPC by hashicorp/go-plugin, in both directions authenticated by
// certificates made for the one process. What go-plugin leaves open is closed
// here: the process is ours to run, so that its stderr is parsed as untrusted
// text, a frozen plugin can be killed, nothing of it is left behind, and it ends
// when nicd does. Descriptors reach the plugin over a socket that it inherits;
// that socket's end is also how it learns that nicd is gone.
//
// Packets do not go through here but through the link ([nicd/framework/link]);
// when to restart a driver, and which, is nicd's to decide.
package plugin

import goplugin "github.com/hashicorp/go-plugin"

// ProtocolVersion is the version of the protocol between nicd and its plugins.
const ProtocolVersion = 1

// handshake keeps a plugin from being run by hand, and nicd from talking to
// something else. It is no security.
var handshake = goplugin.HandshakeConfig{
	ProtocolVersion:  ProtocolVersion,
	MagicCookieKey:   "NICD_PLUGIN",
	MagicCookieValue: "driver",
}

// What nicd tells a plugin in its environment.
const (
	envControl = "NICD_PLUGIN_CONTROL" // descriptor of the control socket
	envExec    = "NICD_PLUGIN_EXEC"    // descriptor of the plugin's own file
	envLog     = "NICD_PLUGIN_LOG"     // level to log at
	envBundled = "NICD_PLUGIN_BUNDLED" // nicd itself: which driver to be
)

// driverPlugin is the name of the only thing a plugin serves.
const driverPlugin = "driver"
