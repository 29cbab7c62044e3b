// Package render makes objects and Helm values of the files that operators edit, with the variables of the
// configuration put in, and digests of them.
package render
