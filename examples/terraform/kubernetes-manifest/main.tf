# A project with a space. docs/terraform.md explains it.
terraform {
  required_providers {
    kubernetes = {
      source  = "hashicorp/kubernetes"
      version = ">= 2.30"
    }
  }
}

variable "url" {
  description = "URL of the API, such as https://fairlead.example.com/kubernetes/management; with an APIService, the URL of the cluster."
  type        = string
}

variable "access_key" {
  description = "Access key; with an APIService, a token of the cluster."
  type        = string
  sensitive   = true
}

provider "kubernetes" {
  host  = var.url
  token = var.access_key
}

resource "kubernetes_manifest" "project" {
  manifest = {
    apiVersion = "management.service.sh/v1"
    kind       = "Project"
    metadata   = { name = "shop" }
    spec = {
      displayName     = "Shop"
      members         = [{ kind = "Team", name = "shop", clusterRole = "edit" }]
      allowedClusters = [{ name = "berlin" }]
    }
  }
  wait {
    condition {
      type   = "Ready"
      status = "True"
    }
  }
}

resource "kubernetes_manifest" "space" {
  manifest = {
    apiVersion = "management.service.sh/v1"
    kind       = "SpaceInstance"
    metadata = {
      name      = "staging"
      namespace = "service-p-${kubernetes_manifest.project.manifest.metadata.name}"
    }
    spec = {
      displayName = "Staging"
      owner       = { team = "shop" }
      clusterRef  = { cluster = "berlin" }
    }
  }
  wait {
    condition {
      type   = "Ready"
      status = "True"
    }
  }
  depends_on = [kubernetes_manifest.project]
}
