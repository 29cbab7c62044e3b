// Package rescue plays Hetzner's rescue system on a simulated server: an SSH server on port 22 of its
// public address, for the keys that enabled it, which answers the commands that hcloudimages v1.3.0
// sends to write a disk image, and no others.
//
// Nothing is downloaded and there is no disk: an image that the Image Factory would have for Hetzner takes as long as
// Latency.Write says, any other address fails as it would on a machine without internet. As the rescue system is for
// one boot, a lab that starts again boots such a server from its disk, which no upload has changed.
package rescue
