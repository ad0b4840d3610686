//! The function that a caller would have got without us.

use std::ffi::{CStr, c_void};
use std::mem;

/// The next function called `name`, as the object that contains `caller` sees it, or null. It is never one of ours.
pub(crate) fn next(name: &CStr, caller: *const c_void) -> *mut c_void {
    let found = beside(name, caller);
    if !found.is_null() && !is_here(found) {
        return found;
    }
    // The program itself calls: those libraries come next that it was linked to.
    // SAFETY: the name ends with zero.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if is_here(found) { std::ptr::null_mut() } else { found }
}

/// In the object of the caller and the libraries that it needs: where Python's or Ruby's module finds it.
fn beside(name: &CStr, caller: *const c_void) -> *mut c_void {
    let Some(object) = object(caller) else { return std::ptr::null_mut() };
    // SAFETY: the loader's own name of an object, which it keeps; nothing is loaded by it. Closing it again leaves
    // the object, whose code has just called.
    unsafe {
        let handle = libc::dlopen(object.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if handle.is_null() {
            return handle;
        }
        let found = libc::dlsym(handle, name.as_ptr());
        libc::dlclose(handle);
        found
    }
}

fn is_here(function: *const c_void) -> bool {
    let here = object(is_here as *const c_void).map(|object| object.dli_fbase);
    here.is_some() && object(function).map(|object| object.dli_fbase) == here
}

fn object(address: *const c_void) -> Option<libc::Dl_info> {
    // SAFETY: all zeros is a valid value, and any address may be asked for.
    unsafe {
        let mut info: libc::Dl_info = mem::zeroed();
        (libc::dladdr(address, &raw mut info) != 0 && !info.dli_fname.is_null()).then_some(info)
    }
}
