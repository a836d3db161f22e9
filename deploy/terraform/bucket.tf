# Attachments and the cold tier. Clients reach objects only through presigned URLs.

resource "aws_s3_bucket" "objects" {
  count         = var.bucket_name == null ? 0 : 1
  bucket        = var.bucket_name
  force_destroy = false
}

resource "aws_s3_bucket_public_access_block" "objects" {
  count                   = length(aws_s3_bucket.objects)
  bucket                  = aws_s3_bucket.objects[0].id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "objects" {
  count  = length(aws_s3_bucket.objects)
  bucket = aws_s3_bucket.objects[0].id
  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

# Objects are written once and never changed, and what a user erased must be gone: no versions.
resource "aws_s3_bucket_versioning" "objects" {
  count  = length(aws_s3_bucket.objects)
  bucket = aws_s3_bucket.objects[0].id
  versioning_configuration {
    status = "Disabled"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "objects" {
  count  = length(aws_s3_bucket.objects)
  bucket = aws_s3_bucket.objects[0].id
  rule {
    bucket_key_enabled = var.kms_key_arn != null
    apply_server_side_encryption_by_default {
      sse_algorithm     = var.kms_key_arn == null ? "AES256" : "aws:kms"
      kms_master_key_id = var.kms_key_arn
    }
  }
}

# Parts of uploads that were never finished are paid for and seen by nobody.
resource "aws_s3_bucket_lifecycle_configuration" "objects" {
  count  = length(aws_s3_bucket.objects)
  bucket = aws_s3_bucket.objects[0].id
  rule {
    id     = "unfinished-uploads"
    status = "Enabled"
    filter {}
    abort_incomplete_multipart_upload {
      days_after_initiation = 2
    }
  }
}

# Only for web pages that upload and download by themselves.
resource "aws_s3_bucket_cors_configuration" "objects" {
  count  = length(var.cors_origins) == 0 ? 0 : length(aws_s3_bucket.objects)
  bucket = aws_s3_bucket.objects[0].id
  cors_rule {
    allowed_origins = var.cors_origins
    allowed_methods = ["GET", "PUT"]
    allowed_headers = ["content-type", "content-length", "x-amz-*", "range", "if-none-match", "if-range"]
    expose_headers  = ["ETag", "Content-Range", "Content-Disposition", "Accept-Ranges"]
    max_age_seconds = 3600
  }
}

# Nothing in the clear on the wire.
data "aws_iam_policy_document" "tls_only" {
  count = length(aws_s3_bucket.objects)
  statement {
    effect    = "Deny"
    actions   = ["s3:*"]
    resources = [aws_s3_bucket.objects[0].arn, "${aws_s3_bucket.objects[0].arn}/*"]
    principals {
      type        = "*"
      identifiers = ["*"]
    }
    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

resource "aws_s3_bucket_policy" "tls_only" {
  count      = length(aws_s3_bucket.objects)
  bucket     = aws_s3_bucket.objects[0].id
  policy     = data.aws_iam_policy_document.tls_only[0].json
  depends_on = [aws_s3_bucket_public_access_block.objects]
}
