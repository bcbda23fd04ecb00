//! The meanings of series: a row each, with its class in the SVG and its color where a page gives none.

/// Passes the rows of all roles to a macro.
macro_rules! with_roles {
    ($then:ident) => {
        $then! {
            /// Values that were measured or needed.
            Observed "observed" "#616776",
            /// Values that are or were expected.
            Forecast "forecast" "#b379cf",
            /// Replicas that a window or a cron trigger asks for.
            Cron "cron" "#d27b03",
            /// The floor lane.
            Floor "floor" "#09a269",
            /// Values that were decided, or that serve.
            Desired "desired" "#1863fe",
            /// The least and the most allowed.
            Bounds "bounds" "#767e89",
            /// A shortage.
            Short "short" "#c5282d",
        }
    };
}

macro_rules! declare {
    ($($(#[$doc:meta])+ $role:ident $class:literal $color:literal,)+) => {
        /// The meaning of a series.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Role { $($(#[$doc])+ $role,)+ }

        impl Role {
            /// Every role, as the legend orders them.
            pub const ALL: &'static [Self] = &[$(Self::$role,)+];

            /// The class in the SVG, and the end of the custom property `--chart-…`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$role => $class,)+ }
            }
        }
    };
}

/// The rule of each role that sets its color.
macro_rules! colors {
    ($($(#[$doc:meta])+ $role:ident $class:literal $color:literal,)+) => {
        concat!($(".chart .", $class, "{color:var(--chart-", $class, ",", $color, ")}",)+)
    };
}

with_roles!(declare);

pub(crate) use {colors, with_roles};

// === impl Role ===

impl Role {
    /// The role of this class, if there is one.
    pub fn of_class(class: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|role| role.as_str() == class)
    }

    /// The class of a mark of this role.
    pub(crate) fn class(self, mark: &str) -> String {
        format!("{} {mark}", self.as_str())
    }
}
