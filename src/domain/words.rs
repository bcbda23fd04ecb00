//! Enums whose variants are words of the API: in status, conditions, events and metric labels.

/// Declares an enum once: its variants, all of them in order (`ALL`), and the word of each (`as_str`), which is the
/// name of the variant unless another word follows it after `=`.
macro_rules! words {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $($(#[$of_variant:meta])+ $variant:ident $(= $word:literal)?,)+ }
    ) => {
        $(#[$meta])*
        pub enum $name { $($(#[$of_variant])+ $variant,)+ }

        impl $name {
            /// Every variant, in the order of the declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word of the API.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => words!(@ $variant $($word)?),)+ }
            }
        }
    };
    (@ $variant:ident) => { stringify!($variant) };
    (@ $variant:ident $word:literal) => { $word };
}
