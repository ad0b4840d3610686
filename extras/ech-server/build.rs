//! Builds OpenSSL 4.0, the first with Encrypted ClientHello, and links its libraries into the
//! program.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let built = openssl_src::Build::new().build();
    println!("cargo:rustc-link-search=native={}", built.lib_dir().display());
    // In this order: the one uses the other.
    println!("cargo:rustc-link-lib=static=ssl");
    println!("cargo:rustc-link-lib=static=crypto");
}
