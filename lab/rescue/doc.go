// Package rescue simulates Hetzner's rescue system on a server: an SSH server on port 22 of its public address, for the
// keys that enabled it, which accepts the commands with which hcloudimages v1.3.0 writes a disk image, and no others.
//
// Nothing is downloaded and there is no disk: an image of the Image Factory for Hetzner takes the time of
// Latency.Write, any other address fails as on a machine without internet. The rescue system is for one boot: after a
// restart of the lab such a server boots from its disk, which no upload has changed.
package rescue
