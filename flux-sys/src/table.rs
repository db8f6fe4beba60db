//! The functions of libflux-core, found when the program runs.

/// Makes the struct `Libflux` of one declaration for each function. A function with a variable number of
/// arguments is a field alone, as Rust has no methods of that kind.
macro_rules! functions {
    (
        $(pub fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*
        $(variadic $variadic:ident: $pointer:ty;)*
    ) => {
        pub struct Libflux {
            // A thread can be canceled while it waits in one of them (pthread_cancel(3)).
            $($name: unsafe extern "C-unwind" fn($($type),*) $(-> $result)?,)*
            $(pub $variadic: $pointer,)*
            // What the others point into.
            _library: ::libloading::Library,
        }

        impl Libflux {
            pub unsafe fn new(path: &str) -> Result<Self, ::libloading::Error> {
                let library = unsafe { ::libloading::Library::new(path) }?;
                macro_rules! find {
                    ($symbol:ident) => {
                        unsafe { *library.get(concat!(stringify!($symbol), "\0").as_bytes())? }
                    };
                }
                Ok(Self {
                    $($name: find!($name),)*
                    $($variadic: find!($variadic),)*
                    _library: library,
                })
            }
            $(
                pub unsafe fn $name(&self, $($argument: $type),*) $(-> $result)? {
                    unsafe { (self.$name)($($argument),*) }
                }
            )*
        }
    };
}
