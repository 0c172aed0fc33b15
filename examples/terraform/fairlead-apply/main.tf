# A project, with the command line. docs/terraform.md explains it.
locals {
  project = {
    apiVersion = "management.service.sh/v1"
    kind       = "Project"
    metadata   = { name = "shop" }
    spec       = { displayName = "Shop" }
  }
}

resource "terraform_data" "project" {
  input            = local.project.metadata.name
  triggers_replace = local.project.metadata.name

  provisioner "local-exec" {
    when    = destroy
    command = "fairlead delete project ${self.input} --yes"
  }
}

resource "terraform_data" "project_content" {
  triggers_replace = local.project
  depends_on       = [terraform_data.project]

  provisioner "local-exec" {
    command     = "printf '%s' \"$OBJECT\" | fairlead apply -f -"
    environment = { OBJECT = jsonencode(local.project) }
  }
}
