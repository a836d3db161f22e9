output "tables" {
  description = "Names of the tables, by system."
  value       = { for system, table in aws_dynamodb_table.table : system => table.name }
}

output "bucket" {
  description = "Name of the bucket, if there is one."
  value       = one(aws_s3_bucket.objects[*].id)
}

output "app_policy_arn" {
  description = "For the role of app servers."
  value       = aws_iam_policy.app.arn
}

output "operator_policy_arn" {
  description = "For bluetick migrate."
  value       = aws_iam_policy.operator.arn
}

output "admin_policy_arn" {
  description = "For bluetick tables create."
  value       = aws_iam_policy.admin.arn
}

output "app_role_arn" {
  description = "For the annotation in kubernetes/accounts.yaml."
  value       = one(aws_iam_role.app[*].arn)
}
