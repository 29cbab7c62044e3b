# Builds the Talos Linux snapshot that the cluster's servers start from: a temporary server boots Hetzner's rescue
# system, writes the disk image of the Talos Image Factory over its disk, and is made a snapshot of.
#
#   export HCLOUD_TOKEN=...
#   packer init packer/hcloud_talosimage.pkr.hcl
#   packer build -var talos_version=v1.13.9 packer/hcloud_talosimage.pkr.hcl
#
# It takes about three minutes and costs a few cents. `go run ./cmd/bootstrap image` finds and checks the result.

packer {
  required_plugins {
    hcloud = {
      source  = "github.com/hetznercloud/hcloud"
      version = ">= 1.6.0, < 2.0.0"
    }
  }
}

variable "talos_version" {
  type        = string
  default     = "v1.13.9"
  description = "Talos Linux release, as TALOS_VERSION."

  validation {
    condition     = can(regex("^v[0-9]+\\.[0-9]+\\.[0-9]+", var.talos_version))
    error_message = "Write the version with its v: v1.13.9."
  }
}

variable "architecture" {
  type        = string
  default     = "amd64"
  description = "amd64 for the CX, CPX and CCX server types, arm64 for CAX."

  validation {
    condition     = contains(["amd64", "arm64"], var.architecture)
    error_message = "Choose amd64 or arm64."
  }
}

variable "schematic" {
  type        = string
  default     = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"
  description = "Image Factory schematic. The default adds siderolabs/qemu-guest-agent to plain Talos."
}

variable "image_name" {
  type        = string
  default     = ""
  description = "Value of the label caph-image-name, as IMAGE_NAME; empty for talos-<architecture>-<version>."
}

variable "location" {
  type        = string
  default     = "nbg1"
  description = "Where the temporary server stands. The snapshot can be used in every location."
}

variable "server_type" {
  type        = string
  default     = ""
  description = "Type of the temporary server; empty for the smallest of the architecture. Its disk is the least size of a server made from the snapshot."
}

locals {
  image_name  = var.image_name != "" ? var.image_name : "talos-${var.architecture}-${var.talos_version}"
  server_type = var.server_type != "" ? var.server_type : (var.architecture == "arm64" ? "cax11" : "cx23")
  image_url   = "https://factory.talos.dev/image/${var.schematic}/${var.talos_version}/hcloud-${var.architecture}.raw.xz"
}

# The token comes from HCLOUD_TOKEN.
source "hcloud" "talos" {
  rescue       = "linux64"
  image        = "debian-12"
  location     = var.location
  server_type  = local.server_type
  ssh_username = "root"

  snapshot_name = "Talos Linux ${var.talos_version} ${var.architecture}"

  # CAPH finds the image by caph-image-name, and by its architecture: exactly one snapshot may match.
  snapshot_labels = {
    os                = "talos"
    version           = var.talos_version
    arch              = var.architecture
    "caph-image-name" = local.image_name
  }
}

build {
  sources = ["source.hcloud.talos"]

  provisioner "shell" {
    # Linux hands all that follows the interpreter to it as one argument, so there is room for no second option here.
    inline_shebang = "/bin/bash -eu"
    inline = [
      "set -o pipefail",
      "echo 'Writing ${local.image_url}'",
      "wget --no-verbose --tries=5 --output-document=- '${local.image_url}' | xz --decompress --stdout | dd of=/dev/sda bs=4M conv=sparse status=none",
      "sync",
    ]
  }
}
