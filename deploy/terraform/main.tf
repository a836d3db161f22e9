# The tables and the bucket of a Bluetick cluster in one region, and the rights of those who use them.
#
#   terraform init && terraform apply -var region=eu-central-1 -var bucket_name=example-bluetick
#
# Checked by scripts/check-deploy: the syntax always, `terraform fmt -check` if terraform is installed, and that the
# tables, their keys and their lifetimes are those listed there. Not checked: `terraform validate` (it fetches the provider) and AWS itself.

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.40, < 7.0"
    }
  }
}

provider "aws" {
  region = var.region
  default_tags {
    tags = merge({ application = "bluetick" }, var.tags)
  }
}

locals {
  # keys: the hash key and the range key, each with its type. ttl: the attribute with the time after which a row may go.
  # backup: point-in-time recovery. What is gone by itself, or made anew at every start, needs none.
  tables = {
    messages           = { keys = [["conversation_id", "S"], ["seq", "N"]], ttl = null, backup = true }
    pending_deliveries = { keys = [["receiver_id", "S"], ["conversation_id", "S"]], ttl = null, backup = true }
    message_status     = { keys = [["user_id", "S"], ["conversation_id", "S"]], ttl = null, backup = true }
    conversations      = { keys = [["user_id", "S"], ["conversation_id", "S"]], ttl = null, backup = true }
    users              = { keys = [["user_id", "S"], ["item", "S"]], ttl = null, backup = true }
    devices            = { keys = [["user_id", "S"], ["device", "S"]], ttl = null, backup = true }
    push_outbox        = { keys = [["user_id", "S"], ["conversation_id", "S"]], ttl = null, backup = false }
    sent_ids           = { keys = [["sent_id", "S"]], ttl = "expires_at", backup = false }
    node_leases        = { keys = [["node", "N"]], ttl = null, backup = false }
    cold_runs          = { keys = [["conversation_id", "S"], ["last_seq", "N"]], ttl = null, backup = true }
    cold_due           = { keys = [["shard", "S"], ["due", "S"]], ttl = null, backup = false }
    attachments        = { keys = [["s3_ref", "S"], ["item", "S"]], ttl = null, backup = true }
  }
}

resource "aws_dynamodb_table" "table" {
  for_each = local.tables

  name         = "${var.table_prefix}${each.key}"
  billing_mode = var.provisioned == null ? "PAY_PER_REQUEST" : "PROVISIONED"
  # Only with var.provisioned. A table that it does not name gets 5 of each, which is little: node_leases needs no more.
  read_capacity  = var.provisioned == null ? null : try(var.provisioned[each.key].read, 5)
  write_capacity = var.provisioned == null ? null : try(var.provisioned[each.key].write, 5)

  hash_key  = each.value.keys[0][0]
  range_key = try(each.value.keys[1][0], null)

  dynamic "attribute" {
    for_each = each.value.keys
    content {
      name = attribute.value[0]
      type = attribute.value[1]
    }
  }

  dynamic "ttl" {
    for_each = each.value.ttl == null ? [] : [each.value.ttl]
    content {
      attribute_name = ttl.value
      enabled        = true
    }
  }

  point_in_time_recovery {
    enabled = each.value.backup
  }

  server_side_encryption {
    enabled     = true
    kms_key_arn = var.kms_key_arn
  }

  deletion_protection_enabled = var.deletion_protection

}
