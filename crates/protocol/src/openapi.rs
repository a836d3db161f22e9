//! OpenAPI schemas of the types whose JSON is not what their fields say. The others derive theirs.

use std::borrow::Cow;

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, schema::Type},
};

use crate::{
    ClientMsgId, ConversationId, DeviceId, MessageId, PushRegistration, S3Ref, UserId,
    push::RegistrationFields,
};

/// Ids are strings of a pattern.
macro_rules! id_schemas {
    ($($name:ident, $pattern:literal, $example:literal, $description:literal;)*) => {
        $(
            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    let text = ObjectBuilder::new()
                        .schema_type(Type::String)
                        .pattern(Some($pattern))
                        .examples([$example])
                        .description(Some($description));
                    RefOr::T(Schema::Object(text.build()))
                }
            }

            impl ToSchema for $name {
                fn name() -> Cow<'static, str> {
                    stringify!($name).into()
                }
            }
        )*

        #[cfg(test)]
        #[test]
        fn the_examples_are_ids() {
            $(assert!($example.parse::<$name>().is_ok(), "{}", $example);)*
        }
    };
}

id_schemas! {
    UserId, "^[A-Za-z0-9._@+|:=-]{1,128}$", "bob",
        "A user of the host application: the `sub` of a token";
    DeviceId, "^[A-Za-z0-9._@-]{1,64}$", "phone-7f3a",
        "A device of a user, named by the client";
    ConversationId, "^[A-Za-z0-9._@+|:=-]{1,128}~[A-Za-z0-9._@+|:=-]{1,128}$", "alice~bob",
        "The ids of two users in byte order, joined by `~`";
    ClientMsgId, "^[!-~]{1,64}$", "c0ffee-1",
        "Chosen by the sender's client: 1 to 64 visible ASCII characters";
    MessageId, "^[0-9]{1,19}$", "252000000000000000",
        "A 64-bit number as a string";
    S3Ref, "^[0-9a-f]{32}$", "019350a2b6c0f2a1b2c3d4e5f6a7b8c9",
        "Names the bytes of an attachment";
}

/// A registration is shown as a client writes it.
impl PartialSchema for PushRegistration {
    fn schema() -> RefOr<Schema> {
        RegistrationFields::schema()
    }
}

impl ToSchema for PushRegistration {
    fn name() -> Cow<'static, str> {
        RegistrationFields::name()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        RegistrationFields::schemas(schemas);
    }
}
