# Three sets of rights, each with nothing extra: app servers, operators who move data, and whoever makes tables.
# Gateways need none.

locals {
  table_arns = [for table in aws_dynamodb_table.table : table.arn]
}

# What an app server calls in the course of its work. No change of a table, and no Scan but of the outbox of notifications, which is
# short by nature: what is due there is found by looking; and of the list of cold runs, for `bluetick cold status` and `verify`.
data "aws_iam_policy_document" "app" {
  statement {
    sid = "Rows"
    actions = [
      "dynamodb:GetItem",
      "dynamodb:BatchGetItem",
      "dynamodb:Query",
      "dynamodb:PutItem",
      "dynamodb:UpdateItem",
      "dynamodb:DeleteItem",
      "dynamodb:ConditionCheckItem",
    ]
    resources = local.table_arns
  }
  statement {
    sid     = "Lists"
    actions = ["dynamodb:Scan"]
    resources = [
      aws_dynamodb_table.table["push_outbox"].arn,
      aws_dynamodb_table.table["cold_runs"].arn,
    ]
  }
  # For readiness, `bluetick doctor` and `bluetick tables check`.
  statement {
    sid = "Look"
    actions = [
      "dynamodb:DescribeTable",
      "dynamodb:DescribeTimeToLive",
      "dynamodb:DescribeContinuousBackups",
    ]
    resources = local.table_arns
  }
  dynamic "statement" {
    for_each = aws_s3_bucket.objects
    content {
      sid       = "Objects"
      actions   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
      resources = ["${statement.value.arn}/*"]
    }
  }
  # Without it a missing object is answered with 403 and not with 404.
  dynamic "statement" {
    for_each = aws_s3_bucket.objects
    content {
      sid       = "Bucket"
      actions   = ["s3:ListBucket"]
      resources = [statement.value.arn]
    }
  }
  dynamic "statement" {
    for_each = var.kms_key_arn == null ? [] : [var.kms_key_arn]
    content {
      sid       = "Key"
      actions   = ["kms:Decrypt", "kms:GenerateDataKey"]
      resources = [statement.value]
    }
  }
}

# Filling and reading whole tables: `bluetick migrate` writes in batches, counts and compares. Attach it, beside the rights of an app server, to a
# person or a job, for as long as it takes. App servers need it only for what looks through a whole table: `bluetick trace MESSAGE_ID`, which
# searches (by conversation and seq a trace needs nothing more), and `bluetick cold run --all`, which lists conversations that are older
# than the cold tier. Moving what is old needs nothing of it.
data "aws_iam_policy_document" "operator" {
  statement {
    sid       = "MoveAndCompare"
    actions   = ["dynamodb:BatchWriteItem", "dynamodb:Scan"]
    resources = local.table_arns
  }
}

# For `bluetick tables create`, if it and not this file makes the tables. By name: they need not be there yet.
data "aws_iam_policy_document" "admin" {
  statement {
    sid = "Tables"
    actions = [
      "dynamodb:CreateTable",
      "dynamodb:DescribeTable",
      "dynamodb:DescribeTimeToLive",
      "dynamodb:UpdateTimeToLive",
      "dynamodb:DescribeContinuousBackups",
      "dynamodb:UpdateContinuousBackups",
      "dynamodb:TagResource",
    ]
    resources = [
      for name in keys(local.tables) :
      "arn:${data.aws_partition.here.partition}:dynamodb:${var.region}:${data.aws_caller_identity.here.account_id}:table/${var.table_prefix}${name}"
    ]
  }
}

data "aws_partition" "here" {}
data "aws_caller_identity" "here" {}

resource "aws_iam_policy" "app" {
  name        = "${var.table_prefix}app"
  description = "What a Bluetick app server may do"
  policy      = data.aws_iam_policy_document.app.json
}

resource "aws_iam_policy" "operator" {
  name        = "${var.table_prefix}operator"
  description = "Reading all rows, for bluetick migrate"
  policy      = data.aws_iam_policy_document.operator.json
}

resource "aws_iam_policy" "admin" {
  name        = "${var.table_prefix}admin"
  description = "Making the tables, for bluetick tables create"
  policy      = data.aws_iam_policy_document.admin.json
}

# A role for the service account of kubernetes/accounts.yaml, if the cluster's OIDC provider is named.
data "aws_iam_policy_document" "app_trust" {
  count = var.oidc_provider_arn == null ? 0 : 1
  statement {
    actions = ["sts:AssumeRoleWithWebIdentity"]
    principals {
      type        = "Federated"
      identifiers = [var.oidc_provider_arn]
    }
    condition {
      test     = "StringEquals"
      variable = "${local.oidc_issuer}:sub"
      values   = ["system:serviceaccount:${var.kubernetes_namespace}:bluetick-app"]
    }
    condition {
      test     = "StringEquals"
      variable = "${local.oidc_issuer}:aud"
      values   = ["sts.amazonaws.com"]
    }
  }
}

locals {
  # arn:aws:iam::111122223333:oidc-provider/oidc.eks.REGION.amazonaws.com/id/… without what stands before the host.
  oidc_issuer = var.oidc_provider_arn == null ? "" : split("oidc-provider/", var.oidc_provider_arn)[1]
}

resource "aws_iam_role" "app" {
  count              = length(data.aws_iam_policy_document.app_trust)
  name               = "${var.table_prefix}app"
  assume_role_policy = data.aws_iam_policy_document.app_trust[0].json
}

resource "aws_iam_role_policy_attachment" "app" {
  count      = length(aws_iam_role.app)
  role       = aws_iam_role.app[0].name
  policy_arn = aws_iam_policy.app.arn
}
