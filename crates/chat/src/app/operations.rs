//! The macro behind the table in `app.rs`.

/// Defines operations of an app server. The input looks like the traits it defines; a method's
/// `=> Name` is the variant of its request, and with it the operation's name on the wire.
///
/// For `async fn op(&self, a: A, b: B) -> AppResult<T> => Op;` in `trait SomeApi` it makes
///
/// - the method `op` of the trait `SomeApi`,
/// - the variant `Op(A, B)` of the request,
/// - the arm of `run_operation` that calls `app.op(a, b)` and writes the answer as JSON,
/// - the method `op` of `RemoteApp`, which sends `Op(a, b)` and reads the answer.
///
/// `(last_write_wins)` after the name marks an operation that sets a value: a late duplicate would undo a newer call.
///
/// The requests listed in the enum itself get only a variant; the rest of them is written by hand.
macro_rules! operations {
    (@flag) => { false };
    (@flag last_write_wins) => { true };
    (
        $(#[$enum_doc:meta])*
        pub enum $Request:ident {
            $($(#[$other_doc:meta])* $Other:ident($($other_type:ty),*),)*
        }
        $(
            $(#[$trait_doc:meta])*
            pub trait $Trait:ident {
                $(
                    $(#[$op_doc:meta])*
                    async fn $op:ident(&self $(, $arg:ident: $type:ty)*) -> AppResult<$answer:ty>
                        => $Variant:ident $(($flag:ident))?;
                )*
            }
        )*
    ) => {
        $(#[$enum_doc])*
        #[derive(Debug, Clone, Serialize, Deserialize)]
        pub enum $Request {
            $($(#[$other_doc])* $Other($($other_type),*),)*
            $($(#[doc = concat!("[`", stringify!($Trait), "::", stringify!($op), "`].")] $Variant($($type),*),)*)*
        }

        impl $Request {
            /// Runs an operation of the table; `None` for the requests that are listed in the enum.
            async fn run_operation(self, app: &dyn App) -> Option<Vec<u8>> {
                match self {
                    $($($Request::$Variant($($arg),*) => Some(remote::to_json(&app.$op($($arg),*).await)),)*)*
                    $($Request::$Other(..) => None,)*
                }
            }

            /// Whether the operation sets a value that the last caller decides.
            pub fn is_last_write_wins(&self) -> bool {
                match self {
                    $($($Request::$Variant(..) => operations!(@flag $($flag)?),)*)*
                    $($Request::$Other(..) => false,)*
                }
            }
        }

        $(
            $(#[$trait_doc])*
            #[async_trait]
            pub trait $Trait: Send + Sync {
                $($(#[$op_doc])* async fn $op(&self $(, $arg: $type)*) -> AppResult<$answer>;)*
            }

            #[async_trait]
            impl<T: Transport> $Trait for RemoteApp<T> {
                $(
                    async fn $op(&self $(, $arg: $type)*) -> AppResult<$answer> {
                        self.0.call($Request::$Variant($($arg),*), is_unavailable).await
                    }
                )*
            }
        )*
    };
}
