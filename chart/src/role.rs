//! The meanings of series: a row each, with its class in the SVG, its colors and its dashes.

/// Passes the rows of all roles to a macro: the class, the color where a page gives none, those of a page that is light and
/// dark, and the dashes of lines.
macro_rules! with_roles {
    ($then:ident) => {
        $then! {
            /// Values that were measured or needed.
            Observed "observed" "#616776" ("#5b6975", "#a3b1bf") "none",
            /// Values that are or were expected.
            Forecast "forecast" "#b379cf" ("#7a45c9", "#bb93fa") "6 2",
            /// Replicas that a window or a cron trigger asks for.
            Cron "cron" "#d27b03" ("#a25b00", "#e8a13c") "9 3 2 3",
            /// The floor lane.
            Floor "floor" "#09a269" ("#0a7a5e", "#35c39b") "2.5 2",
            /// Values that were decided, or that serve.
            Desired "desired" "#1863fe" ("#1767c9", "#6aaefc") "none",
            /// The least and the most allowed.
            Bounds "bounds" "#767e89" ("#53636f", "#98a7b5") "10 5",
            /// A shortage.
            Short "short" "#c5282d" ("#c4232b", "#ff8078") "none",
        }
    };
}

macro_rules! declare {
    ($($(#[$doc:meta])+ $role:ident $class:literal $color:literal $page:tt $dashes:literal,)+) => {
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

/// The rules of each role that set its color and its dashes.
macro_rules! colors {
    ($($(#[$doc:meta])+ $role:ident $class:literal $color:literal $page:tt $dashes:literal,)+) => {
        concat!($(
            ".chart .", $class, "{color:var(--chart-", $class, ",", $color, ")}",
            ".chart .", $class, ".line,.chart .", $class, ".steps,.chart .", $class, ".rule{stroke-dasharray:",
            $dashes, "}",
        )+)
    };
}

/// The rules of each role that set its colors on a page, and the tone of what has its class.
macro_rules! tones {
    ($($(#[$doc:meta])+ $role:ident $class:literal $color:literal ($light:literal, $dark:literal) $dashes:literal,)+) => {
        concat!($(
            ":root{--chart-", $class, ":light-dark(", $light, ",", $dark, ")}",
            ".", $class, "{--tone:var(--chart-", $class, ")}",
        )+)
    };
}

with_roles!(declare);

pub(crate) use {colors, tones, with_roles};

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
