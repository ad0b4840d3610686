//! Finds the function that a caller would have reached without us.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::ptr;

use super::api;

/// A function of OpenSSL, as a caller would have reached it.
#[derive(Clone, Copy)]
pub(super) struct Next {
    /// Null if there is none.
    pub(super) function: *mut c_void,
    /// True if it belongs to the OpenSSL that is served.
    pub(super) is_served: bool,
}

/// Returns the next function called `name`, as seen by the object that contains `caller`. Never
/// returns one of ours.
pub(super) fn next(name: &CStr, caller: *const c_void) -> Next {
    let found = find(name, caller).unwrap_or(ptr::null_mut());
    Next { function: found, is_served: !found.is_null() && api::is_served(name, found) }
}

fn find(name: &CStr, caller: *const c_void) -> Option<*mut c_void> {
    // For the program itself, or libraries loaded with it: the libraries that they were linked to
    // come next. The last resort is for a wrong caller: the return address of a tail call can be
    // the caller's caller.
    near_caller(name, caller)
        .or_else(|| unless_ours(linked(name)))
        .or_else(|| unless_ours(api::find(name)))
}

/// Returns the function in the libraries that this one was linked to; null if there is none.
fn linked(name: &CStr) -> *mut c_void {
    // SAFETY: the name is NUL-terminated.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// Searches the caller's object and its dependencies, where Python's or Ruby's module finds the
/// function.
fn near_caller(name: &CStr, caller: *const c_void) -> Option<*mut c_void> {
    let object = object(caller)?;
    // SAFETY: the loader's own name of an object, which the loader keeps; the call loads nothing.
    // Closing the handle leaves the object loaded, since its code has just called. The program
    // itself has no name.
    unsafe {
        if *object == 0 {
            return None;
        }
        let handle = libc::dlopen(object, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if handle.is_null() {
            return None;
        }
        let found = libc::dlsym(handle, name.as_ptr());
        libc::dlclose(handle);
        unless_ours(found)
    }
}

fn unless_ours(function: *mut c_void) -> Option<*mut c_void> {
    (!function.is_null() && base(function) != base(unless_ours as *const c_void))
        .then_some(function)
}

fn base(address: *const c_void) -> *mut c_void {
    located(address).map_or(ptr::null_mut(), |(info, _)| info.dli_fbase)
}

/// Returns the loader's name of the object at an address.
fn object(address: *const c_void) -> Option<*const c_char> {
    let (_, map) = located(address)?;
    // SAFETY: the loader's own entry of a loaded object.
    let name = unsafe { map.as_ref() }?.name;
    (!name.is_null()).then_some(name)
}

/// The beginning of `struct link_map` of link.h.
#[repr(C)]
struct LinkMap {
    address: usize,
    name: *const c_char,
}

fn located(address: *const c_void) -> Option<(libc::Dl_info, *const LinkMap)> {
    // From dlfcn.h.
    const LINK_MAP: c_int = 2;
    // SAFETY: all zeros is a valid value, any address is allowed, and this request returns the
    // object's entry.
    unsafe {
        let mut info: libc::Dl_info = mem::zeroed();
        let mut map = ptr::null_mut();
        let found = libc::dladdr1(address, &raw mut info, &raw mut map, LINK_MAP) != 0;
        found.then_some((info, map.cast_const().cast()))
    }
}
