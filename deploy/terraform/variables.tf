variable "region" {
  description = "Where everything lives. One region: see docs/scale.md on several."
  type        = string
}

variable "table_prefix" {
  description = "Stands before the name of every table, policy and role; dynamodb.table_prefix in bluetick.toml."
  type        = string
  default     = "bluetick-"

  validation {
    condition     = can(regex("^[A-Za-z0-9_.-]{0,200}$", var.table_prefix))
    error_message = "Letters, digits, '_', '.' and '-' only."
  }
}

variable "provisioned" {
  description = "Units of each table, if they are provisioned. Null: on demand, which costs more for each unit and needs no forecast."
  type        = map(object({ read = number, write = number }))
  default     = null
}

variable "deletion_protection" {
  description = "Whether a table refuses to be deleted."
  type        = bool
  default     = true
}

variable "kms_key_arn" {
  description = "Key that encrypts tables and bucket. Null: the key that AWS manages."
  type        = string
  default     = null
}

variable "bucket_name" {
  description = "Bucket for attachments and old messages; its name is unique in the world. Null: none."
  type        = string
  default     = null
}

variable "cors_origins" {
  description = "Origins of web pages that may use presigned URLs: [\"https://app.example\"]."
  type        = list(string)
  default     = []
}

variable "oidc_provider_arn" {
  description = "OIDC provider of an EKS cluster whose service account bluetick-app gets the rights of an app server. Null: no role is made."
  type        = string
  default     = null
}

variable "kubernetes_namespace" {
  description = "Namespace of that service account."
  type        = string
  default     = "bluetick"
}

variable "tags" {
  description = "Further tags of everything."
  type        = map(string)
  default     = {}
}
