//! Property tests over every variant of an enum: none can be forgotten.

use std::fmt::Debug;

use proptest::{
    strategy::BoxedStrategy,
    test_runner::{Config, TestCaseError, TestRunner},
};

/// Checks a property of many values of each variant.
pub fn for_every_variant<T: Debug>(strategies: Vec<BoxedStrategy<T>>, check: impl Fn(T)) {
    for strategy in strategies {
        let config = Config { failure_persistence: None, ..Config::default() };
        let result = TestRunner::new(config).run(&strategy, |value| {
            check(value);
            Ok::<(), TestCaseError>(())
        });
        if let Err(e) = result {
            panic!("{e}");
        }
    }
}

/// A strategy for each variant of an enum: `strategies_of!(Enum { Variant => strategy, … })`. A
/// variant without one does not compile, and a strategy that makes another variant panics.
#[macro_export]
macro_rules! strategies_of {
    ($enum:ident { $($variant:ident => $strategy:expr,)* }) => {{
        #[allow(dead_code)]
        fn every_variant_is_listed(value: &$enum) {
            match value { $($enum::$variant { .. } => {})* }
        }
        vec![$(
            proptest::strategy::Strategy::boxed(proptest::strategy::Strategy::prop_map($strategy, |value| {
                assert!(matches!(value, $enum::$variant { .. }), "{value:?} is no {}", stringify!($variant));
                value
            }))
        ),*]
    }};
}
