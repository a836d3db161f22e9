//! The switches by which a test or the simulator takes a rule out, to see that something breaks. They exist only
//! under the `sim` feature; without it every rule is a constant `true`.

#[cfg(feature = "sim")]
mod switches {
    use std::{collections::BTreeSet, sync::Arc};

    /// The delivery rules of the design that can be taken out.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Rule {
        R1,
        R2,
        /// The row keeps the minimum, and a session begins no later than with what nobody has acked.
        R3,
        R4,
        R5,
        /// A device with a cursor gets what happened since.
        R6,
        /// A device without a cursor gets what no device has acked, whether or not there is a pending row.
        R6Undelivered,
        R8,
        R9,
        R12,
    }

    impl Rule {
        pub const ALL: [Rule; 10] = [
            Rule::R1,
            Rule::R2,
            Rule::R3,
            Rule::R4,
            Rule::R5,
            Rule::R6,
            Rule::R6Undelivered,
            Rule::R8,
            Rule::R9,
            Rule::R12,
        ];
    }

    #[derive(Debug, Clone, Default)]
    pub struct Rules(Arc<BTreeSet<Rule>>);

    impl Rules {
        pub fn without(rules: impl IntoIterator<Item = Rule>) -> Self {
            Rules(Arc::new(rules.into_iter().collect()))
        }

        pub fn holds(&self, rule: Rule) -> bool {
            !self.0.contains(&rule)
        }
    }
}

#[cfg(feature = "sim")]
pub use switches::{Rule, Rules};

#[cfg(not(feature = "sim"))]
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules;

/// Whether a rule is in force: `rule!(self.rules, R4)`.
macro_rules! rule {
    ($rules:expr, $name:ident) => {{
        #[cfg(feature = "sim")]
        {
            $rules.holds($crate::rules::Rule::$name)
        }
        #[cfg(not(feature = "sim"))]
        {
            let _ = &$rules;
            true
        }
    }};
}
pub(crate) use rule;
