//! Links the core into a static library without std: the build fails if any dependency pulls std
//! in.
//!
//! `./check.sh no_std`
#![no_std]
#![allow(unsafe_code)] // an allocator and a C entry point cannot be had without

use core::alloc::{GlobalAlloc, Layout};

use headstart_proto::{Client, ClientConfig, Instant, JoinKey};

struct Nothing;

// SAFETY: never gives memory out, which an allocator may do at any time.
unsafe impl GlobalAlloc for Nothing {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: Nothing = Nothing;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Uses the core so that it is linked.
#[unsafe(no_mangle)]
pub extern "C" fn headstart_opens() -> bool {
    let mut client = Client::new(JoinKey::new([0; 16]), ClientConfig::default());
    client.handle_app_data(Instant::ZERO, b"\x16\x03\x01");
    client.poll_datagram().is_none()
}
